package informer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/processor"
)

// Handler is told what happens, one event at a time. It runs on a goroutine of
// its own: a slow handler delays itself only.
type Handler[T Object] interface {
	Handle(Event[T])
}

// HandlerFunc is a function as a [Handler]. It gets every event.
type HandlerFunc[T Object] func(Event[T])

// Handle calls f.
func (f HandlerFunc[T]) Handle(e Event[T]) { f(e) }

// Handlers is a [Handler] made of functions by what happened. Those that are
// nil are not called.
type Handlers[T Object] struct {
	Add    func(obj T, inInitialList bool)
	Update func(old, new T) // Sync too: then old and new are the same
	Delete func(last T)     // the last known state
	Synced func()           // once, after the initial list
}

// Handle calls the function for e.
func (h Handlers[T]) Handle(e Event[T]) {
	switch {
	case e.Type == Added && h.Add != nil:
		h.Add(e.Object, e.InInitialList)
	case (e.Type == Updated || e.Type == Sync) && h.Update != nil:
		h.Update(e.Old, e.Object)
	case e.Type == Deleted && h.Delete != nil:
		h.Delete(e.Object)
	case e.Type == Synced && h.Synced != nil:
		h.Synced()
	}
}

// FollowOption changes what a handler or an iterator is told.
type FollowOption func(*processor.Options)

// Resync tells every object in the store again as a [Sync] event, each time
// the period is over. The server is not asked; this is for handlers that want
// to look at everything now and then. 0 means never.
func Resync(period time.Duration) FollowOption {
	return func(o *processor.Options) { o.Resync = period }
}

// Named gives a handler a name, to be found by in logs, in [Status] and in
// metrics. Two handlers of one informer should not have the same.
func Named(name string) FollowOption {
	return func(o *processor.Options) { o.Name = name }
}

// WithBookmarks also tells of [Bookmark] events.
func WithBookmarks() FollowOption {
	return func(o *processor.Options) { o.Bookmarks = true }
}

// FoldAfter bounds what waits for a slow follower. Once more than n events do,
// they are folded to the newest of each object: of ten updates the last is
// told, with the state before the first as Old; an object that came and went
// meanwhile is not told of at all. Replaying what is told still gives the store,
// and the memory is bounded by the number of objects, even if the follower is
// stuck. Without this option everything is kept and told.
func FoldAfter(n int) FollowOption {
	return func(o *processor.Options) { o.Fold = max(n, 1) }
}

// FoldAfterFunc is [FoldAfter] with a number that may change: n is asked each time
// that something comes to wait, by several goroutines at once, and should be quick.
func FoldAfterFunc(n func() int) FollowOption {
	return func(o *processor.Options) { o.FoldBy = func() int { return max(n(), 1) } }
}

func newFollowOptions(opts []FollowOption) processor.Options {
	var o processor.Options
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Registration is a handler's place with an informer.
type Registration struct {
	run     func(ctx context.Context, drain bool)
	status  func() HandlerStatus
	synced  <-chan struct{}
	forget  func(*Registration) // takes it off the informer
	release func()              // lets go of what it holds in the store

	mu      sync.Mutex
	cancel  context.CancelFunc // of the last run
	idle    chan struct{}      // closed when the last run has ended; nil if none was
	runs    int                // that have not ended: one, and those that wait for it
	removed bool
}

// HandlerStatus is what there is to know about a handler at one moment.
type HandlerStatus struct {
	// Name is what [Named] calls it.
	Name string
	// Delivered counts the events the handler has been given.
	Delivered uint64
	// Lag is the number of changes of the store it has not been told of.
	Lag uint64
	// Backlog is the number of events that wait for it, and Folded the number
	// of those that will never be told, see [FoldAfter]. Without folding
	// Backlog is Lag.
	Backlog, Folded uint64
	// Synced says that it has been told the whole initial list.
	Synced bool
	// Panics counts the events at which it panicked; LastPanic is the last.
	Panics    uint64
	LastPanic string
}

// Status may be called at any time.
func (r *Registration) Status() HandlerStatus { return r.status() }

// WaitForSync waits until the handler has returned from the initial list. The
// error is the context's.
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
		return fmt.Errorf("wait for a handler to be told the initial list: %w", context.Cause(ctx))
	}
}

// Remove takes the handler off its informer and waits until it has returned
// from the event it is at, or ctx ends; in any case it gets no other event. A
// handler that removes itself must not wait: let it call Remove on another
// goroutine or with a context that has ended. Removing twice does nothing.
func (r *Registration) Remove(ctx context.Context) error {
	r.forget(r)
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

// start lets the handler run until the end of ctx or until it is removed, or
// with drain until it has been told everything. It calls ended, if not nil, when
// that is over, which may be at once.
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
			<-before // never two at once: events come one at a time
		}
		r.run(ctx, drain)
	}()
}

// ended notes the end of a run.
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
		return fmt.Errorf("wait for a handler to return: %w", context.Cause(ctx))
	}
}

// AddHandler registers h. While the informer runs, h is told of every object
// in the store, then [Synced], then what happens, in order, one event at a
// time. When the informer stops h is left alone, and when it starts again h
// goes on with the event after the last. Handlers may be added and removed at
// any time.
//
// A panic in h is reported to the logger with its stack and counted; h goes on
// with the next event.
func (inf *Informer[T]) AddHandler(h Handler[T], opts ...FollowOption) *Registration {
	o := newFollowOptions(opts)
	f := inf.engine.follow(o)
	var panics atomic.Uint64
	var last atomic.Pointer[string]
	// Panics are not looked for at each event, which would take as long as to tell
	// it. After one the follower goes on with the next event.
	follow := func(ctx context.Context, drain bool) (over bool) {
		var at EventType
		defer func() {
			if p := recover(); p != nil {
				what := fmt.Sprint(p)
				panics.Add(1)
				last.Store(&what)
				inf.log().Warn("a handler panicked; it goes on with the next event", "handler", o.Name, "event", at.String(), "panic", what, "stack", string(debug.Stack()))
			}
		}()
		if functions, ok := h.(Handlers[T]); ok { // which need no Event made for each
			f.call(ctx, drain, functions, &at)
			return true
		}
		f.run(ctx, drain, func(e Event[T]) bool {
			at = e.Type
			h.Handle(e)
			return true
		})
		return true
	}
	r := &Registration{
		synced: f.HasSynced(),
		run: func(ctx context.Context, drain bool) {
			for !follow(ctx, drain) {
			}
		},
		forget:  inf.forget,
		release: f.Release,
		status: func() HandlerStatus {
			s := f.Status()
			out := HandlerStatus{Name: o.Name, Delivered: s.Delivered, Lag: s.Lag, Backlog: s.Backlog, Folded: s.Folded, Synced: s.Synced, Panics: panics.Load()}
			if what := last.Load(); what != nil {
				out.LastPanic = *what
			}
			return out
		},
	}
	inf.register(r)
	return r
}
