package clientgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/internal/processor"
)

// crashPause is how long a handler that has panicked is left alone, if the
// program survived it (client-go's shared_informer.go, processorListener.run).
const crashPause = time.Second

// listener is a handler of an informer, and the registration its owner holds.
// It reads the log at its own pace.
type listener struct {
	follower *processor.Follower[item]
	handler  cache.ResourceEventHandler
	name     string
	logger   klog.Logger

	untold    atomic.Uint64 // events of the follower's that the handler was not told
	panics    atomic.Uint64
	lastPanic atomic.Pointer[string]

	mu        sync.Mutex
	requested time.Duration // the resync period asked for
	period    time.Duration // the one it gets
	next      time.Time     // of the next resync
	modes     []mode        // since when it is syncing, and since when not

	cancel   context.CancelFunc // nil until it runs
	removed  bool
	finished chan struct{} // closed when nothing of it runs or will run
}

// mode says that from a place in the log on, updates that change nothing are
// told to a listener, or not. They are what a resync is made of, and a list that
// finds what is held already. A listener is told until the first time that
// somebody's resync is due and its own is not.
type mode struct {
	seq     uint64
	syncing bool
}

var (
	_ cache.ResourceEventHandlerRegistration = &listener{}
	_ cache.DoneChecker                      = checker{}
)

// HasSynced says that the informer has synced and the handler has returned from
// the last object of the initial list.
func (l *listener) HasSynced() bool { return cache.IsDone(l.HasSyncedChecker()) }

// HasSyncedChecker is [listener.HasSynced] to wait for.
func (l *listener) HasSyncedChecker() cache.DoneChecker {
	return checker{l.name, l.follower.HasSynced()}
}

// ShutdownChan is closed when the handler has been removed, or the informer has
// stopped, and it will not be called any more. cache.ShutDownEventHandler asks
// for it.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }

// start lets the listener read until ctx ends.
func (l *listener) start(ctx context.Context, done *sync.WaitGroup) {
	ctx, l.cancel = context.WithCancel(ctx)
	done.Go(func() {
		defer close(l.finished)
		defer l.follower.Release()
		for !l.run(ctx) {
			select {
			case <-time.After(crashPause):
			case <-ctx.Done():
				return
			}
		}
	})
}

// run tells the handler what happens until ctx ends. A panic of the handler ends
// the program or is logged, as utilruntime.ReallyCrash says; then run returns
// false, the event is lost, and the next run goes on with the next one.
func (l *listener) run(ctx context.Context) (over bool) {
	defer utilruntime.HandleCrashWithLogger(l.logger, l.panicked)
	update := l.handler.OnUpdate
	if functions, ok := l.handler.(cache.ResourceEventHandlerFuncs); ok && functions.UpdateFunc != nil {
		update = functions.UpdateFunc // what OnUpdate would call
	}
	l.follower.Run(ctx, false, func(e processor.Event[item]) bool {
		switch {
		case e.Type != processor.Updated:
			deliver(l.handler, e)
		case !e.Same || l.syncing(e.Seq):
			update(e.Old.obj(), e.Object.obj())
		default:
			l.untold.Add(1)
		}
		return true
	})
	return true
}

// stop ends the listener; what it has not been told is forgotten. It does not
// wait for the handler.
func (l *listener) stop() {
	if l.removed {
		return
	}
	l.removed = true
	if l.cancel != nil {
		l.cancel()
		return
	}
	l.follower.Release()
	close(l.finished)
}

// panicked notes a panic that the program survives.
func (l *listener) panicked(_ context.Context, value any) {
	what := fmt.Sprint(value)
	l.lastPanic.Store(&what)
	l.panics.Add(1)
}

// deliver calls the function of a handler that an event is for, if there is one.
func deliver(h cache.ResourceEventHandler, e processor.Event[item]) {
	switch e.Type {
	case processor.Added:
		h.OnAdd(e.Object.obj(), e.Initial)
	case processor.Updated:
		h.OnUpdate(e.Old.obj(), e.Object.obj())
	case processor.Sync:
		h.OnUpdate(e.Object.obj(), e.Object.obj())
	case processor.Deleted:
		if e.Unseen {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: e.Object.key(), Obj: e.Object.obj()})
			return
		}
		h.OnDelete(e.Object.obj())
	}
}

// syncing says whether updates that change nothing are told at a place in the
// log, and forgets about the places before.
func (l *listener) syncing(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.modes) > 1 && l.modes[1].seq <= seq {
		l.modes = l.modes[1:]
	}
	return len(l.modes) == 0 || l.modes[0].syncing || l.modes[0].seq > seq
}

// due decides whether a resync is due, and notes it for what comes from seq on.
func (l *listener) due(now time.Time, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := l.period > 0 && !now.Before(l.next)
	if is {
		l.next = now.Add(l.period)
	}
	was := len(l.modes) == 0 || l.modes[len(l.modes)-1].syncing
	if is != was {
		l.modes = append(slices.Clip(l.modes), mode{seq, is})
	}
	return is
}

// wantsSync says whether the listener is syncing at present.
func (l *listener) wantsSync() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.modes) == 0 || l.modes[len(l.modes)-1].syncing
}

// checker is a channel with a name.
type checker struct {
	name string
	done <-chan struct{}
}

func (c checker) Name() string          { return c.name }
func (c checker) Done() <-chan struct{} { return c.done }

var errForeign = errors.New("the registration is not of an informer of this package")

// handlerName names a handler in logs: the type, or where its functions are.
func handlerName(h cache.ResourceEventHandler) string {
	switch h := h.(type) {
	case nil:
		return "<nil>"
	case cache.ResourceEventHandlerFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	case *cache.ResourceEventHandlerFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	case cache.ResourceEventHandlerDetailedFuncs:
		return funcsName(h.AddFunc, h.UpdateFunc, h.DeleteFunc)
	}
	return fmt.Sprintf("%T", h)
}
