package informer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/subscriber"
)

// Handler receives events, one at a time, on a goroutine of its own: a slow
// handler delays only itself.
type Handler[T Object] interface {
	Handle(Event[T])
}

// HandlerFunc is a function as a [Handler]. It receives every event, also [Synced] and
// [Bookmark], which have no Object: look at the type first.
type HandlerFunc[T Object] func(Event[T])

// Handle calls f.
func (f HandlerFunc[T]) Handle(e Event[T]) { f(e) }

// Handlers is a [Handler] with a function per event type. Nil functions are not
// called.
type Handlers[T Object] struct {
	Add    func(obj T, inInitialList bool)
	Update func(old, new T) // also for Sync: old and new are then the same
	Delete func(last T)     // the last known state
	Synced func()           // once, after the initial list
}

// Handle calls the function for e.
func (h Handlers[T]) Handle(e Event[T]) { h.call(e.Type, e.Object, e.Old, e.InInitialList) }

// call calls the function for an event.
func (h *Handlers[T]) call(t EventType, obj, old T, initial bool) {
	switch {
	case t == Updated && h.Update != nil: // nearly always
		h.Update(old, obj)
	case t == Added && h.Add != nil:
		h.Add(obj, initial)
	case t == Sync && h.Update != nil:
		h.Update(obj, obj)
	case t == Deleted && h.Delete != nil:
		h.Delete(obj)
	case t == Synced && h.Synced != nil:
		h.Synced()
	}
}

// handles reports whether there is a function for events of a type.
func (h *Handlers[T]) handles(t EventType) bool {
	switch t {
	case Added:
		return h.Add != nil
	case Updated, Sync:
		return h.Update != nil
	case Deleted:
		return h.Delete != nil
	case Synced:
		return h.Synced != nil
	}
	return false
}

// SubscribeOption configures the events that a handler or a loop receives.
type SubscribeOption func(*subscriber.Options)

// Resync delivers every object in the store again as a [Sync] event, once per
// period. It makes no request to the server. It is for handlers that should look
// at everything from time to time. 0 means never.
func Resync(period time.Duration) SubscribeOption {
	return func(o *subscriber.Options) { o.Resync = period }
}

// Named gives a handler a name for logs, [Status] and metrics. The handlers of
// one informer should have different names.
func Named(name string) SubscribeOption {
	return func(o *subscriber.Options) { o.Name = name }
}

// Bookmarks also delivers [Bookmark] events.
func Bookmarks() SubscribeOption {
	return func(o *subscriber.Options) { o.Bookmarks = true }
}

// FoldAfter bounds the backlog of a slow subscriber. If more than n events wait,
// they are folded to the newest of each object: of ten updates only the last is
// delivered, with the state before the first as Old, and an object that was
// added and deleted meanwhile is not delivered at all. Replaying the delivered
// events still yields the store. Memory is bounded by the number of objects, even
// if the subscriber is stuck. Without this option every event is kept and
// delivered.
func FoldAfter(n int) SubscribeOption {
	return func(o *subscriber.Options) { o.Fold = max(n, 1) }
}

func newSubscribeOptions(opts []SubscribeOption) subscriber.Options {
	var o subscriber.Options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Registration is a handler registered with an informer.
type Registration struct {
	run        func(ctx context.Context, drain bool)
	status     func() HandlerStatus
	synced     <-chan struct{}
	unregister func(*Registration) // from the informer
	release    func()              // unpins what the handler holds in the store

	mu      sync.Mutex
	cancel  context.CancelFunc // of the last run
	idle    chan struct{}      // closed when the last run has ended; nil if there was none
	runs    int                // runs that have not ended: one, and those that wait for it
	removed bool
}

// HandlerStatus is a snapshot of what a handler is doing.
type HandlerStatus struct {
	// Name is set by [Named].
	Name string
	// Delivered counts the events that the handler has been called with. The one that
	// it may be busy with is included. While many events are delivered at more than 32
	// a millisecond, Delivered and Backlog may be up to 31 events behind. Otherwise
	// they are exact.
	Delivered uint64
	// Lag is the number of changes of the store that have not been delivered. With
	// [FoldAfter], those being delivered are included.
	Lag uint64
	// Backlog is the number of events that wait for the handler: Lag, and the rest of
	// the initial list or of a resync. Folded counts those that will never be
	// delivered, see [FoldAfter].
	Backlog, Folded uint64
	// BacklogSince is when the oldest event of the backlog came: when its change was
	// stored or, for the initial list, when the handler was added. It is zero if no
	// event waits. A handler is stuck or too slow if BacklogSince is long ago.
	BacklogSince time.Time
	// Synced reports whether the whole initial list has been delivered.
	Synced bool
	// Panics counts the events at which the handler panicked. LastPanic is the
	// value of the last panic.
	Panics    uint64
	LastPanic string
}

// Status returns the current status of the handler.
func (r *Registration) Status() HandlerStatus { return r.status() }

// name names the handler in errors.
func (r *Registration) name() string {
	if name := r.status().Name; name != "" {
		return fmt.Sprintf("handler %q", name)
	}
	return "a handler"
}

// WaitForSync waits until the handler has returned from the initial list. The
// error is ctx's.
func (r *Registration) WaitForSync(ctx context.Context) error {
	select {
	case <-r.synced:
		return nil
	default:
	}
	select {
	case <-r.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to receive the initial list: %w", r.name(), context.Cause(ctx))
	}
}

// Remove removes the handler from its informer, and waits until it has returned
// from its current event or ctx ends. In both cases it gets no further event. A
// handler that removes itself must not wait: it calls Remove on another goroutine
// or with a context that has ended. Removing a handler twice does nothing.
func (r *Registration) Remove(ctx context.Context) error {
	r.unregister(r)
	r.mu.Lock()
	removed := r.removed
	r.removed = true
	if !removed && r.runs == 0 {
		r.release()
	}
	if r.cancel != nil {
		r.cancel()
	}
	r.mu.Unlock()
	return r.wait(ctx)
}

// start runs the handler until ctx ends or it is removed, or, with drain, until
// it has received everything. Then, which may be at once, it calls ended if that
// is not nil.
func (r *Registration) start(ctx context.Context, drain bool, ended func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ended == nil {
		ended = func() {}
	}
	if r.removed {
		ended()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	before, idle := r.idle, make(chan struct{})
	r.cancel, r.idle = cancel, idle
	r.runs++
	go func() {
		// Deferred, since a handler may end its goroutine, as t.FailNow does.
		defer ended()
		defer close(idle)
		defer r.ended()
		defer cancel()
		if before != nil {
			<-before // one run at a time: events are delivered one at a time
		}
		r.run(ctx, drain)
	}()
}

// ended records the end of a run.
func (r *Registration) ended() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs--; r.removed && r.runs == 0 {
		r.release()
	}
}

// wait waits until the handler does not run any more.
func (r *Registration) wait(ctx context.Context) error {
	r.mu.Lock()
	idle := r.idle
	r.mu.Unlock()
	if idle == nil {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for %s to return: %w", r.name(), context.Cause(ctx))
	}
}

// AddHandler registers h. While the informer runs, h receives every object in the
// store, then [Synced], then every change, in order, one event at a time. When
// the informer stops, delivery stops; when it starts again, h continues with the
// event after the last. Handlers may be added and removed at any time.
//
// A panic of h is logged with its stack and counted. h then continues with the
// next event.
func (inf *Informer[T]) AddHandler(h Handler[T], opts ...SubscribeOption) *Registration {
	o := newSubscribeOptions(opts)
	sub := inf.subscription(subscriber.Subscribe(inf.store.Indexer, o), o)
	var panics atomic.Uint64
	var last atomic.Pointer[string]
	// A recover per event would take as long as delivering it. There is one per
	// run, and after a panic the subscription continues with the next event.
	deliver := func(ctx context.Context, drain bool) (done bool) {
		var at EventType
		defer func() {
			if p := recover(); p != nil {
				what := fmt.Sprint(p)
				panics.Add(1)
				last.Store(&what)
				inf.log().Warn("a handler panicked; it continues with the next event", "handler", o.Name, "event", at.String(), "panic", what, "stack", string(debug.Stack()))
			}
		}()
		if functions, ok := h.(Handlers[T]); ok && sub.store.lent == nil { // deliver reports what each call received
			sub.call(ctx, drain, &functions, &at)
			return true
		}
		sub.deliver(ctx, drain, func(e Event[T]) bool {
			at = e.Type
			h.Handle(e)
			return true
		})
		return true
	}
	r := &Registration{
		synced: sub.HasSynced(),
		run: func(ctx context.Context, drain bool) {
			for !deliver(ctx, drain) {
			}
		},
		unregister: inf.unregister,
		release:    sub.Release,
		status: func() HandlerStatus {
			s := sub.Status()
			out := HandlerStatus{Name: o.Name, Delivered: s.Delivered, Lag: s.Lag, Backlog: s.Backlog, BacklogSince: s.Since, Folded: s.Folded, Synced: s.Synced, Panics: panics.Load()}
			if what := last.Load(); what != nil {
				out.LastPanic = *what
			}
			return out
		},
	}
	inf.register(r)
	return r
}
