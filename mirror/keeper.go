package mirror

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/reflector"
)

// keeper runs the informer of one resource of one member. An informer that was
// refused is not started again: another keeper takes its place.
type keeper struct {
	id        uint64 // of no other keeper, ever
	member    *member
	resource  cluster.Resource
	namespace string // the only one mirrored; empty: all
	informer  *informer.Informer[*codec.Raw]
	ctx       context.Context // ended with the reason why, before the store is emptied
	cancel    context.CancelCauseFunc
	done      chan struct{}
	fresh     freshness
	use       use

	// Set before done is closed.
	err   error
	ended time.Time
}

var keepers atomic.Uint64

func newKeeper(m *member, r cluster.Resource, namespace string) (*keeper, error) {
	inf, err := informer.New[*codec.Raw](m.cluster,
		informer.Resource(r.Versioned()), informer.Compact(), informer.InNamespace(namespace), informer.Retain(m.mirror.opts.Retain), informer.WithLogger(m.mirror.log))
	if err != nil {
		return nil, err
	}
	k := &keeper{id: keepers.Add(1), member: m, resource: r, namespace: namespace, informer: inf, use: use{born: time.Now()}, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(m.ctx)
	if err := k.initFreshness(); err != nil {
		return nil, err
	}
	return k, nil
}

// run lasts as long as the informer does.
func (k *keeper) run() {
	var parts sync.WaitGroup
	parts.Go(func() { k.mind() })
	parts.Go(func() { k.await() })
	err := k.informer.Run(k.ctx)
	switch {
	case err == nil:
		err = context.Cause(k.ctx)
	case refused(err):
		err = k.refusal(err)
	}
	k.cancel(err)
	parts.Wait()
	// Nothing hands out the objects any more; let go of them, and first of the
	// states held, for which the store would keep what it drops.
	k.member.mirror.snapshots.clear(func(of *keeper) bool { return of == k })
	if empty := k.informer.Empty(context.Background()); empty != nil {
		k.member.mirror.log.Error("cannot empty an informer", "cluster", k.member.name, "resource", k.resource.String(), "err", empty)
	}
	k.err, k.ended = err, time.Now()
	close(k.done)
}

// mind watches for the one trouble that does not pass by itself: the cluster
// no longer serves the resource, because its definition was deleted. The
// informer would wait for it to come back; whoever reads is better told.
func (k *keeper) mind() {
	for k.ctx.Err() == nil {
		changed := k.informer.StatusChanged()
		if k.status().Phase == informer.Gone {
			k.member.mirror.log.Info("the cluster no longer serves a resource", "cluster", k.member.name, "resource", k.resource.String())
			k.member.retire(k)
			k.cancel(errUnserved)
			return
		}
		select {
		case <-changed:
		case <-k.ctx.Done():
		}
	}
}

// over says that the keeper has ended and another may take its place.
func (k *keeper) over() bool {
	select {
	case <-k.done:
		return time.Since(k.ended) >= refusedPause || !refused(k.err)
	default:
		return k.ctx.Err() != nil && !refused(context.Cause(k.ctx))
	}
}

func refused(err error) bool {
	var r *reflector.RefusedError
	return errors.As(err, &r)
}

// status may be called at any time.
func (k *keeper) status() informer.Status { return k.informer.Status() }

var errWaited = errors.New("it took too long")

// ready says that the informer has its first list. Most reads find it so, and need
// no more.
func (k *keeper) ready() bool {
	view := k.informer.View()
	defer view.Release()
	return view.Synced() && k.ctx.Err() == nil // in this order: the store is emptied after the end
}

// wait waits until the informer has its first list.
func (k *keeper) wait(ctx context.Context) error {
	if k.ready() {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, k.member.mirror.opts.Wait, errWaited)
	defer cancel()
	limited, stop := either(limited, k.ctx)
	defer stop()
	err := k.informer.WaitForSync(limited)
	if refused(err) {
		<-k.ctx.Done() // run is about to say why
	}
	if why := context.Cause(k.ctx); why != nil {
		err = why // else an emptied store could be taken for an empty resource
	}
	switch {
	case err == nil:
		return nil
	case ReasonOf(err) != "" || ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return err
	}
	return unsynced(k, k.status())
}

// refusal is the error of a resource that the cluster does not let the mirror
// have.
func (k *keeper) refusal(err error) error {
	e := upstream("", err).(*Error)
	if e.Reason == NotFound {
		e.Reason = UnknownResource
		k.member.cluster.Invalidate() // it believed otherwise
	}
	e.Retry = refusedPause
	return e
}

// either returns a context that ends when one of two does, with the cause of
// that one.
func either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// during runs do with a context that also ends with the keeper. If it has ended, the
// error is its cause.
func (k *keeper) during(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := either(ctx, k.ctx)
	defer stop()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

func asError(err error, target **Error) bool { return errors.As(err, target) }
