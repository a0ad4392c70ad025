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

	"github.com/tidings-io/tidings/internal/subscriber"
)

// crashPause is the pause after a handler has panicked and the program survived
// (client-go's shared_informer.go, processorListener.run).
const crashPause = time.Second

// listener is a handler of an informer, and the registration that
// AddEventHandler returned for it. It reads the log at its own pace.
type listener struct {
	subscriber *subscriber.Subscriber[item]
	handler    cache.ResourceEventHandler
	name       string
	logger     klog.Logger

	undelivered atomic.Uint64 // events of the subscriber that the handler did not get
	panics      atomic.Uint64
	lastPanic   atomic.Pointer[string]

	mu         sync.Mutex
	requested  time.Duration // the resync period asked for
	period     time.Duration // the period it gets
	next       time.Time     // when the next resync is due
	syncStates []syncState   // oldest first

	cancel   context.CancelFunc // nil until started
	removed  bool
	finished chan struct{} // closed when the listener has ended and will not start again
}

// syncState says whether, from a position in the log on, a listener gets
// updates that change nothing. Those come from a resync, or from a list that
// finds an object unchanged. A listener gets them until the first time that a
// resync of another listener is due and its own is not.
type syncState struct {
	seq     uint64 // of the first event it applies to
	syncing bool
}

var (
	_ cache.ResourceEventHandlerRegistration = &listener{}
	_ cache.DoneChecker                      = doneChecker{}
)

// HasSynced reports whether the informer has synced and the handler has
// returned from the last object of the initial list.
func (l *listener) HasSynced() bool { return cache.IsDone(l.HasSyncedChecker()) }

// HasSyncedChecker returns a checker to wait for HasSynced.
func (l *listener) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{l.name, l.subscriber.HasSynced()}
}

// ShutdownChan returns a channel that is closed when the handler has been
// removed, or the informer has stopped, and the handler has returned. It is for
// cache.ShutDownEventHandler.
func (l *listener) ShutdownChan() <-chan struct{} { return l.finished }

// start runs the listener until ctx ends.
func (l *listener) start(ctx context.Context, done *sync.WaitGroup) {
	ctx, l.cancel = context.WithCancel(ctx)
	done.Go(func() {
		defer close(l.finished)
		defer l.subscriber.Release()
		for !l.run(ctx) {
			select {
			case <-time.After(crashPause):
			case <-ctx.Done():
				return
			}
		}
	})
}

// run calls the handler until ctx ends. If the handler panics, the program ends
// or the panic is logged, as utilruntime.ReallyCrash says. In the latter case
// run returns false, the event is lost, and the next run continues with the
// next event.
func (l *listener) run(ctx context.Context) (over bool) {
	defer utilruntime.HandleCrashWithLogger(l.logger, l.panicked)
	update := l.handler.OnUpdate
	if functions, ok := l.handler.(cache.ResourceEventHandlerFuncs); ok && functions.UpdateFunc != nil {
		update = functions.UpdateFunc // what OnUpdate would call
	}
	l.subscriber.Run(ctx, false, func(e subscriber.Event[item]) bool {
		switch {
		case e.Type != subscriber.Updated:
			deliver(l.handler, e)
		case !e.Same || l.syncingAt(e.Seq):
			update(e.Old.obj(), e.Object.obj())
		default:
			l.undelivered.Add(1)
		}
		return true
	})
	return true
}

// stop ends the listener and drops its remaining events. It does not wait for
// the handler.
func (l *listener) stop() {
	if l.removed {
		return
	}
	l.removed = true
	if l.cancel != nil {
		l.cancel()
		return
	}
	l.subscriber.Release()
	close(l.finished)
}

// panicked records a panic that the program survived.
func (l *listener) panicked(_ context.Context, value any) {
	what := fmt.Sprint(value)
	l.lastPanic.Store(&what)
	l.panics.Add(1)
}

// deliver calls the function of h for an event.
func deliver(h cache.ResourceEventHandler, e subscriber.Event[item]) {
	switch e.Type {
	case subscriber.Added:
		h.OnAdd(e.Object.obj(), e.Initial)
	case subscriber.Updated:
		h.OnUpdate(e.Old.obj(), e.Object.obj())
	case subscriber.Sync:
		h.OnUpdate(e.Object.obj(), e.Object.obj())
	case subscriber.Deleted:
		if e.Unseen {
			h.OnDelete(cache.DeletedFinalStateUnknown{Key: e.Object.key(), Obj: e.Object.obj()})
			return
		}
		h.OnDelete(e.Object.obj())
	}
}

// syncingAt reports whether the listener gets updates that change nothing at
// seq, and drops the states that ended before.
func (l *listener) syncingAt(seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.syncStates) > 1 && l.syncStates[1].seq <= seq {
		l.syncStates = l.syncStates[1:]
	}
	return len(l.syncStates) == 0 || l.syncStates[0].syncing || l.syncStates[0].seq > seq
}

// due reports whether a resync is due, and sets the state for events from seq
// on.
func (l *listener) due(now time.Time, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := l.period > 0 && !now.Before(l.next)
	if is {
		l.next = now.Add(l.period)
	}
	was := len(l.syncStates) == 0 || l.syncStates[len(l.syncStates)-1].syncing
	if is != was {
		l.syncStates = append(slices.Clip(l.syncStates), syncState{seq, is})
	}
	return is
}

// isSyncing reports whether the newest state is syncing.
func (l *listener) isSyncing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.syncStates) == 0 || l.syncStates[len(l.syncStates)-1].syncing
}

// doneChecker is a cache.DoneChecker: a channel with a name.
type doneChecker struct {
	name string
	done <-chan struct{}
}

func (c doneChecker) Name() string          { return c.name }
func (c doneChecker) Done() <-chan struct{} { return c.done }

var errForeign = errors.New("the registration does not belong to an informer of this package")
