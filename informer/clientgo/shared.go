package clientgo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/processor"
	"github.com/tidings-io/tidings/internal/share"
)

// minimumResyncPeriod is the shortest resync period a handler can have.
const minimumResyncPeriod = time.Second

// sharedIndexInformer is a cache.SharedIndexInformer over the engine.
type sharedIndexInformer struct {
	store         *store
	lw            cache.ListerWatcher
	example       runtime.Object
	description   string
	metrics       metrics
	defaultResync time.Duration // of handlers that do not say
	mutations     cache.MutationDetector
	clock         clock.Clock
	synced        chan struct{}
	news          news // of the status

	mu          sync.Mutex
	started     bool
	stopped     bool
	resyncCheck time.Duration // how often is looked whose resync is due; fixed once started
	transform   cache.TransformFunc
	shared      *share.Table // nil unless parts are shared
	onError     cache.WatchErrorHandlerWithContext
	reflector   *reflector
	listeners   []*listener
	running     context.Context // of listeners; nil while there are none that run
	handlers    *sync.WaitGroup // that run
}

var _ cache.SharedIndexInformer = &sharedIndexInformer{}

// NewSharedInformer is [NewSharedIndexInformer] without indexes.
func NewSharedInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration) cache.SharedInformer {
	return NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, cache.Indexers{})
}

// NewSharedIndexInformer is [NewSharedIndexInformerWithOptions] with the two
// options that most people need. Its signature is that of the option NewInformer
// of controller-runtime's caches.
func NewSharedIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return NewSharedIndexInformerWithOptions(lw, exampleObject, cache.SharedIndexInformerOptions{
		ResyncPeriod: defaultEventHandlerResyncPeriod,
		Indexers:     indexers,
	})
}

// NewSharedIndexInformerWithOptions returns an informer that keeps what lw
// lists and watches, and tells handlers of it, as client-go's does
// (shared_informer.go): the store and its indexes are ahead of every
// notification, each handler gets everything in order, one call at a time, and
// no handler waits for another. Objects are told and kept as they come from lw,
// or from the transform.
//
// Everything may be called from any goroutine. An informer runs once; when it
// has stopped, Run has returned and no handler is called any more.
//
// Resyncs are done only if ResyncPeriod is not 0. A handler's period is at least
// a second. One that asks for less than the informer's before that is started
// makes the informer look more often; one that comes later gets the informer's.
func NewSharedIndexInformerWithOptions(lw cache.ListerWatcher, exampleObject runtime.Object, options cache.SharedIndexInformerOptions) cache.SharedIndexInformer {
	return &sharedIndexInformer{
		store:         newStore(cache.DeletionHandlingMetaNamespaceKeyFunc, options.Indexers, storeMetrics(options.Identifier, options.InformerMetricsProvider)),
		lw:            lw,
		example:       exampleObject,
		description:   options.ObjectDescription,
		metrics:       newMetrics(options.Identifier, options.InformerMetricsProvider),
		defaultResync: options.ResyncPeriod,
		resyncCheck:   options.ResyncPeriod,
		mutations:     cache.NewCacheMutationDetector(fmt.Sprintf("%T", exampleObject)),
		clock:         clock.RealClock{},
		synced:        make(chan struct{}),
		handlers:      &sync.WaitGroup{},
	}
}

// Run is RunWithContext with a channel to stop it.
func (s *sharedIndexInformer) Run(stopCh <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stopCh))
}

// RunWithContext runs the informer until ctx ends. It returns when nothing of
// the informer runs any more; what handlers have not been told by then they will
// not be told.
func (s *sharedIndexInformer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	queue := delta.NewQueue[item]()
	// Handlers outlive the source: they end after it, whatever becomes of ctx.
	running, endHandlers := context.WithCancelCause(context.WithoutCancel(ctx))

	s.mu.Lock()
	if s.started {
		s.mu.Unlock()
		endHandlers(nil)
		logger.Info("Warning: the sharedIndexInformer has started, run more than once is not allowed")
		return
	}
	s.started = true
	r := newReflectorWithOptions(s.lw, s.example, &inlet{queue: queue, transform: s.transform, shared: s.shared}, cache.ReflectorOptions{
		Logger: &logger, ResyncPeriod: s.resyncCheck, TypeDescription: s.description, Clock: s.clock,
	})
	r.ShouldResync = s.shouldResync
	r.Changed = s.news.announce
	if s.onError != nil {
		r.onError = s.onError
	}
	s.reflector = r
	s.running = running
	for _, l := range s.listeners {
		l.start(running, s.handlers)
	}
	s.mu.Unlock()

	var parts sync.WaitGroup
	parts.Go(func() { s.mutations.Run(running.Done()) })
	defer func() {
		s.mu.Lock()
		s.stopped = true
		s.listeners = nil
		s.running = nil
		s.mu.Unlock()
		endHandlers(errors.New("informer is stopping"))
		s.handlers.Wait()
		parts.Wait()
	}()
	var source sync.WaitGroup
	source.Go(func() { r.RunWithContext(ctx) })
	wait.UntilWithContext(ctx, func(ctx context.Context) { s.process(ctx, queue) }, time.Second)
	source.Wait() // not deferred: a panic must not wait for the source
}

// process brings the store up to date, until ctx ends.
func (s *sharedIndexInformer) process(ctx context.Context, queue *delta.Queue[item]) {
	for ctx.Err() == nil {
		deltas, err := queue.Pop(ctx)
		if err != nil {
			return
		}
		done := s.metrics.batch(len(deltas))
		for len(deltas) > 0 && ctx.Err() == nil {
			n := untilSync(deltas)
			if n == 0 {
				s.resync()
				deltas = deltas[1:]
				continue
			}
			s.store.follow(deltas[:n])
			s.applied(deltas[:n])
			deltas = deltas[n:]
		}
		done()
	}
}

// untilSync is how many deltas come before a resync.
func untilSync(deltas []delta.Delta[item]) int {
	for i := range deltas {
		if deltas[i].Type == delta.Sync {
			return i
		}
	}
	return len(deltas)
}

// applied looks after what follows from deltas beside the store and the log.
func (s *sharedIndexInformer) applied(deltas []delta.Delta[item]) {
	for i := range deltas {
		switch d := &deltas[i]; d.Type {
		case delta.Added, delta.Updated:
			s.mutations.AddObject(d.Object.obj())
		case delta.Replaced:
			for _, i := range d.List.Items {
				s.mutations.AddObject(i.obj())
			}
			if !s.HasSynced() {
				close(s.synced)
			}
		}
	}
}

// shouldResync looks whose resync is due; the others are told no more of what
// does not change, until theirs is.
func (s *sharedIndexInformer) shouldResync() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, seq := s.clock.Now(), s.store.ix.Latest().Tail().Seq
	any := false
	for _, l := range s.listeners {
		any = l.due(now, seq) || any
	}
	return any
}

// resync has everything told again to those who are due.
func (s *sharedIndexInformer) resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.wantsSync() {
			l.follower.Resync()
		}
	}
}

// AddEventHandler is AddEventHandlerWithOptions without options.
func (s *sharedIndexInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod is AddEventHandlerWithOptions with a period.
func (s *sharedIndexInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions registers a handler. If the informer runs, the
// handler is first told of everything in the store, as part of the initial list.
func (s *sharedIndexInformer) AddEventHandlerWithOptions(handler cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because it has stopped already", handler)
	}
	logger := klog.Background()
	if options.Logger != nil {
		logger = *options.Logger
	}
	requested := s.defaultResync
	if options.ResyncPeriod != nil {
		requested = *options.ResyncPeriod
	}
	requested = s.admit(logger, requested)
	l := &listener{
		handler: handler, logger: logger, requested: requested, finished: make(chan struct{}),
		name:   fmt.Sprintf("%s + event handler %s", s.name(), handlerName(handler)),
		period: resyncPeriod(logger, requested, s.resyncCheck),
		// Before the start nobody is told of what somebody has put into the store.
		follower: processor.Follow(s.store.ix, processor.Options{News: !s.started}),
	}
	l.next = s.clock.Now().Add(l.period)
	s.listeners = append(s.listeners, l)
	if s.running != nil {
		l.start(s.running, s.handlers)
	}
	return l, nil
}

// admit makes of the resync period that a handler asks for one that it can ask
// for, and looks more often from now on if that is what it takes.
func (s *sharedIndexInformer) admit(logger klog.Logger, period time.Duration) time.Duration {
	if period <= 0 {
		return period
	}
	if period < minimumResyncPeriod {
		logger.Info("Warning: resync period is too small. Changing it to the minimum allowed value", "resyncPeriod", period, "minimumResyncPeriod", minimumResyncPeriod)
		period = minimumResyncPeriod
	}
	if period >= s.resyncCheck {
		return period
	}
	if s.started {
		logger.Info("Warning: resync period is smaller than resync check period and the informer has already started. Changing it to the resync check period", "resyncPeriod", period, "resyncCheckPeriod", s.resyncCheck)
		return s.resyncCheck
	}
	s.resyncCheck = period
	for _, l := range s.listeners {
		l.mu.Lock()
		l.period = resyncPeriod(logger, l.requested, period)
		l.mu.Unlock()
	}
	return period
}

// resyncPeriod is what a handler gets that asks for a period, if it is looked
// for resyncs every so often.
func resyncPeriod(logger klog.Logger, requested, check time.Duration) time.Duration {
	switch {
	case requested == 0:
		return 0
	case check == 0:
		logger.Info("Warning: the specified resyncPeriod is invalid because this shared informer doesn't support resyncing", "desired", requested)
		return 0
	case requested < check:
		logger.Info("Warning: the specified resyncPeriod is being increased to the minimum resyncCheckPeriod", "desired", requested, "resyncCheckPeriod", check)
		return check
	}
	return requested
}

// RemoveEventHandler takes a handler off the informer. It gets no other event
// than the one it may be at, for whose end cache.ShutDownEventHandler waits.
// Removing it again does nothing.
func (s *sharedIndexInformer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	l, ok := handle.(*listener)
	if !ok {
		return fmt.Errorf("%w: %T", errForeign, handle)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.listeners, l); i >= 0 {
		s.listeners = slices.Delete(s.listeners, i, i+1)
		l.stop()
	}
	return nil
}
