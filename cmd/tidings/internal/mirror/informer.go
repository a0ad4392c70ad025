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
	"github.com/tidings-io/tidings/internal/informerapi"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// Informer runs the informer of one resource in one cluster. An Informer that was
// refused is not restarted; another one replaces it.
type Informer struct {
	id        uint64 // unique in the process
	cluster   *Cluster
	resource  cluster.Resource
	namespace string // empty: all namespaces
	engine    *informer.Informer[*codec.Raw]
	internals Internals
	ctx       context.Context // ends before the store is emptied; its cause says why
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
	k := &Informer{id: lastInformer.Add(1), cluster: c, resource: r, namespace: namespace, use: use{born: time.Now()}, done: make(chan struct{})}
	opts := []informer.Option{informer.Resource(r.Versioned()), informer.Compact(), informer.IndexOwners(), informer.InNamespace(namespace), informer.Retain(c.mirror.opts.Retain), informer.Logger(c.calm)}
	if c.mirror.opts.Journal != nil {
		opts = append(opts, informer.StartFrom(restorer{k}))
	}
	var err error
	if k.engine, err = informer.New[*codec.Raw](c.cluster, opts...); err != nil {
		return nil, err
	}
	k.internals = informerapi.Of(k.engine)
	k.ctx, k.cancel = context.WithCancelCause(c.ctx)
	return k, nil
}

// restorer restores an informer from the mirror's journal.
type restorer struct{ inf *Informer }

func (r restorer) Restore(ctx context.Context, each func(json []byte) error) (string, error) {
	return r.inf.cluster.mirror.opts.Journal.Restore(ctx, r.inf, each)
}

// ID identifies the informer. No other Informer of the process ever has the same.
func (k *Informer) ID() uint64 { return k.id }

// Cluster is the cluster whose resource the informer mirrors.
func (k *Informer) Cluster() *Cluster { return k.cluster }

// Resource is the mirrored resource.
func (k *Informer) Resource() cluster.Resource { return k.resource }

// Namespace is the only mirrored namespace. Empty means all namespaces.
func (k *Informer) Namespace() string { return k.namespace }

// Engine holds the objects. It is emptied after the informer's context has ended:
// the deletions it delivers from then on did not happen in the cluster.
func (k *Informer) Engine() *informer.Informer[*codec.Raw] { return k.engine }

// Internals is what the engine offers to this program only.
func (k *Informer) Internals() Internals { return k.internals }

// Internals is the internal API of the informer of encoded objects.
type Internals = informerapi.Informer[*codec.Raw, *informer.View[*codec.Raw]]

// Context ends with the informer. Its cause says why.
func (k *Informer) Context() context.Context { return k.ctx }

// Watched records an open watch. The informer does not become idle until end is
// called, which the caller must do when the watch ends.
func (k *Informer) Watched() (end func()) { return k.use.beginWatch() }

// FollowOptions are the options of a watch on the informer: with bookmarks, and with
// a backlog of [Options.Backlog] or less, see [Mirror.FoldEarlier].
func (k *Informer) FollowOptions() []informer.SubscribeOption {
	return []informer.SubscribeOption{informer.Bookmarks(), func(o *subscriber.Options) {
		o.FoldBy = func() int { return max(k.cluster.mirror.backlog(), 1) }
	}}
}

// Subscribe subscribes to the events of an informer at once, until ctx ends, under a name for
// logs and status. waiting is the number of events that may wait outside of the informer's own
// backlog. The caller must call stop in the end.
func Subscribe(ctx context.Context, inf *informer.Informer[*codec.Raw], name string, waiting int, opts ...informer.SubscribeOption) (in <-chan informer.Event[*codec.Raw], stop func()) {
	out := make(chan informer.Event[*codec.Raw], waiting)
	handler := inf.AddHandler(informer.HandlerFunc[*codec.Raw](func(e informer.Event[*codec.Raw]) {
		select {
		case out <- e:
		case <-ctx.Done():
		}
	}), append(opts, informer.Bookmarks(), informer.Named(name))...)
	return out, func() { _ = handler.Remove(context.Background()) } // it waits for nothing
}

// AtEnd registers a function to be called when the informer has ended, before the
// store is emptied. If the informer has ended already, AtEnd calls it at once. The
// owner of a pinned view must release it then.
func (k *Informer) AtEnd(f func()) {
	k.mu.Lock()
	if !k.ended {
		k.atEnd = append(k.atEnd, f)
		f = func() {}
	}
	k.mu.Unlock()
	f()
}

// run runs the informer until it ends.
func (k *Informer) run() {
	var parts sync.WaitGroup
	parts.Go(func() { k.followStatus() })
	parts.Go(func() { k.endWhenIdle() })
	for _, recorder := range []Recorder{k.cluster.mirror.opts.Journal, k.cluster.mirror.opts.Publisher} {
		if recorder == nil {
			continue
		}
		if record := recorder.Record(k); record != nil {
			parts.Go(record)
		}
	}
	err := k.engine.Run(k.ctx)
	switch {
	case err == nil:
		err = context.Cause(k.ctx)
	case refused(err):
		err = k.refusal(err)
	}
	k.cancel(err)
	parts.Wait()
	// Nothing returns the objects any more: drop them. Release the pinned states
	// first, or the store would keep what it drops for them.
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

// followStatus checks the cluster's connection when a request has failed, and has the
// request repeated when a lost connection is back. It ends the informer when the cluster no longer serves the resource, because its definition was
// deleted. The engine would wait until the resource comes back; readers get an error
// instead.
func (k *Informer) followStatus() {
	for k.ctx.Err() == nil {
		changed, restored := k.engine.StatusChanged(), k.cluster.connection.restored()
		switch k.status().Phase {
		case informer.Waiting:
			k.cluster.connection.check()
		case informer.Gone:
			k.cluster.mirror.log.Info("the cluster no longer serves a resource", "cluster", k.cluster.name, "resource", k.resource.String())
			k.cluster.forget(k, 0)
			k.cancel(errUnserved)
			return
		}
		select {
		case <-changed:
		case <-restored:
			k.internals.Retry()
		case <-k.ctx.Done():
		}
	}
}

// replaceable reports whether the informer has ended and another may replace it.
func (k *Informer) replaceable() bool {
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

// errTimeout is the cause of a context that ends at a timeout of the mirror.
var errTimeout = errors.New("it took too long")

// ready reports whether the informer has its first list. For most reads it does, and
// they need not wait.
func (k *Informer) ready() bool {
	view := k.engine.View()
	defer view.Release()
	return view.Synced() && k.ctx.Err() == nil // in this order: the store is emptied after the context has ended
}

// wait waits until the informer has its first list.
func (k *Informer) wait(ctx context.Context) error {
	if k.ready() {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, k.cluster.mirror.opts.Wait, errTimeout)
	defer cancel()
	limited, stop := Either(limited, k.ctx)
	defer stop()
	err := k.engine.WaitForSync(limited)
	if refused(err) {
		<-k.ctx.Done() // run is about to set the cause
	}
	if why := context.Cause(k.ctx); why != nil {
		err = why // an emptied store must not be taken for an empty resource
	}
	switch {
	case err == nil:
		return nil
	case ReasonOf(err) != "" || ctx.Err() != nil && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return err
	}
	return unsynced(k, k.status())
}

// refusal is the error of a resource that the cluster does not let the mirror read.
func (k *Informer) refusal(err error) error {
	e := k.cluster.Upstream("", err).(*Error)
	if e.Reason == NotFound {
		e.Reason = UnknownResource
		k.cluster.cluster.Invalidate() // its discovery is outdated
	}
	e.Retry = refusedPause
	return e
}

// Either returns a context that ends when either of two contexts does, with the same
// cause. It has the values of the first.
func Either(ctx, other context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
