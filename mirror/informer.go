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

// Informer runs the informer of one resource of one cluster. One that was refused
// is not started again: another takes its place.
type Informer struct {
	id        uint64 // of no other, ever
	cluster   *Cluster
	resource  cluster.Resource
	namespace string // the only one mirrored; empty: all
	engine    *informer.Informer[*codec.Raw]
	ctx       context.Context // ended with the reason why, before the store is emptied
	cancel    context.CancelCauseFunc
	done      chan struct{}
	use       use

	mu    sync.Mutex
	atEnd []func()
	ended bool

	// Set before done is closed.
	err     error
	endedAt time.Time
}

var lastInformer atomic.Uint64

func newInformer(c *Cluster, r cluster.Resource, namespace string) (*Informer, error) {
	engine, err := informer.New[*codec.Raw](c.cluster,
		informer.Resource(r.Versioned()), informer.Compact(), informer.InNamespace(namespace), informer.Retain(c.mirror.opts.Retain), informer.WithLogger(c.mirror.log))
	if err != nil {
		return nil, err
	}
	k := &Informer{id: lastInformer.Add(1), cluster: c, resource: r, namespace: namespace, engine: engine, use: use{born: time.Now()}, done: make(chan struct{})}
	k.ctx, k.cancel = context.WithCancelCause(c.ctx)
	return k, nil
}

// ID is another one for each informer there ever is in the process.
func (k *Informer) ID() uint64 { return k.id }

// Cluster is the one that is mirrored.
func (k *Informer) Cluster() *Cluster { return k.cluster }

// Resource is what is mirrored.
func (k *Informer) Resource() cluster.Resource { return k.resource }

// Namespace is the only one mirrored; empty: all.
func (k *Informer) Namespace() string { return k.namespace }

// Engine holds the objects. It is emptied after the context has ended: what comes
// then is no news of the cluster.
func (k *Informer) Engine() *informer.Informer[*codec.Raw] { return k.engine }

// Context ends with the informer; its cause says why.
func (k *Informer) Context() context.Context { return k.ctx }

// Watched notes that a watch is open, for which the informer is kept; end is to
// be called when it ends.
func (k *Informer) Watched() (end func()) { return k.use.begin() }

// FollowOptions are how watches follow the informer: with bookmarks, and with a
// backlog as [Options.Backlog] says at the time.
func (k *Informer) FollowOptions() []informer.FollowOption {
	return []informer.FollowOption{informer.WithBookmarks(), informer.FoldAfterFunc(k.cluster.mirror.backlog)}
}

// AtEnd has f called when the informer has ended, before the store is emptied, or
// at once if it has. What holds a View must release it then.
func (k *Informer) AtEnd(f func()) {
	k.mu.Lock()
	if !k.ended {
		k.atEnd = append(k.atEnd, f)
		f = func() {}
	}
	k.mu.Unlock()
	f()
}

// run lasts as long as the informer does.
func (k *Informer) run() {
	var parts sync.WaitGroup
	parts.Go(func() { k.mind() })
	parts.Go(func() { k.await() })
	err := k.engine.Run(k.ctx)
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
	k.mu.Lock()
	atEnd := k.atEnd
	k.atEnd, k.ended = nil, true
	k.mu.Unlock()
	for _, f := range atEnd {
		f()
	}
	if empty := k.engine.Empty(context.Background()); empty != nil {
		k.cluster.mirror.log.Error("cannot empty an informer", "cluster", k.cluster.name, "resource", k.resource.String(), "err", empty)
	}
	k.err, k.endedAt = err, time.Now()
	close(k.done)
}

// mind watches for the one trouble that does not pass by itself: the cluster
// no longer serves the resource, because its definition was deleted. The
// informer would wait for it to come back; whoever reads is better told.
func (k *Informer) mind() {
	for k.ctx.Err() == nil {
		changed := k.engine.StatusChanged()
		if k.status().Phase == informer.Gone {
			k.cluster.mirror.log.Info("the cluster no longer serves a resource", "cluster", k.cluster.name, "resource", k.resource.String())
			k.cluster.forget(k)
			k.cancel(errUnserved)
			return
		}
		select {
		case <-changed:
		case <-k.ctx.Done():
		}
	}
}

// over says that the informer has ended and another may take its place.
func (k *Informer) over() bool {
	select {
	case <-k.done:
		return time.Since(k.endedAt) >= refusedPause || !refused(k.err)
	default:
		return k.ctx.Err() != nil && !refused(context.Cause(k.ctx))
	}
}

func refused(err error) bool {
	var r *reflector.RefusedError
	return errors.As(err, &r)
}

// status may be called at any time.
func (k *Informer) status() informer.Status { return k.engine.Status() }

// errWaited is why what has no deadline of its own ends.
var errWaited = errors.New("it took too long")

// ready says that the informer has its first list. Most reads find it so, and need
// no more.
func (k *Informer) ready() bool {
	view := k.engine.View()
	defer view.Release()
	return view.Synced() && k.ctx.Err() == nil // in this order: the store is emptied after the end
}

// wait waits until the informer has its first list.
func (k *Informer) wait(ctx context.Context) error {
	if k.ready() {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, k.cluster.mirror.opts.Wait, errWaited)
	defer cancel()
	limited, stop := Either(limited, k.ctx)
	defer stop()
	err := k.engine.WaitForSync(limited)
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
func (k *Informer) refusal(err error) error {
	e := k.cluster.Upstream("", err).(*Error)
	if e.Reason == NotFound {
		e.Reason = UnknownResource
		k.cluster.cluster.Invalidate() // it believed otherwise
	}
	e.Retry = refusedPause
	return e
}

// Either returns a context that ends when one of two does, with the cause of
// that one.
func Either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
