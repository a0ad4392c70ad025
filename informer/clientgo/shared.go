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

	"github.com/tidings-io/tidings/internal/broadcast"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/share"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// minimumResyncPeriod is the shortest resync period of a handler.
const minimumResyncPeriod = time.Second

// sharedIndexInformer is a cache.SharedIndexInformer that runs on the engine.
type sharedIndexInformer struct {
	store         *store
	lw            cache.ListerWatcher
	example       runtime.Object
	description   string
	metrics       metrics
	defaultResync time.Duration // of handlers that do not set one
	mutations     cache.MutationDetector
	clock         clock.Clock
	synced        chan struct{}
	statusChange  broadcast.Signal

	mu          sync.Mutex
	started     bool
	stopped     bool
	resyncCheck time.Duration // how often to check for due resyncs; fixed once started
	transform   cache.TransformFunc
	shared      *share.Table // nil unless equal parts are shared
	onError     cache.WatchErrorHandlerWithContext
	reflector   *reflector
	listeners   []*listener
	running     context.Context // of the listeners; nil unless the informer runs
	handlers    *sync.WaitGroup // running listeners
}

var _ cache.SharedIndexInformer = &sharedIndexInformer{}

// NewSharedInformer is [NewSharedIndexInformer] without indexes.
func NewSharedInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration) cache.SharedInformer {
	return NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, cache.Indexers{})
}

// NewSharedIndexInformer is [NewSharedIndexInformerWithOptions] with the two
// most common options. Its signature is that of NewInformer in
// controller-runtime's cache.Options.
func NewSharedIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	return NewSharedIndexInformerWithOptions(lw, exampleObject, cache.SharedIndexInformerOptions{
		ResyncPeriod: defaultEventHandlerResyncPeriod,
		Indexers:     indexers,
	})
}

// NewSharedIndexInformerWithOptions returns an informer that stores what lw
// lists and watches and calls handlers for the changes, as client-go's does
// (shared_informer.go). The store and its indexes are updated before any
// handler is called. Each handler gets all events in order, one call at a time,
// and does not wait for other handlers. Objects are stored and delivered as
// they come from lw or from the transform.
//
// All methods are safe for concurrent use. An informer runs once. When it has
// stopped, Run has returned and no handler is called any more.
//
// Resyncs happen only if ResyncPeriod is not 0. The period of a handler is at
// least a second. A handler added before the start with a shorter period than
// the informer's shortens how often the informer checks. One added later gets
// the informer's period.
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

// Run is RunWithContext with a stop channel.
func (s *sharedIndexInformer) Run(stopCh <-chan struct{}) {
	s.RunWithContext(wait.ContextForChannel(stopCh))
}

// RunWithContext runs the informer until ctx ends. It returns when all
// goroutines of the informer have ended. Events that handlers have not got by
// then are dropped.
func (s *sharedIndexInformer) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	logger := klog.FromContext(ctx)
	queue := delta.NewQueue[item]()
	// Handlers outlive the source: they end after it, even if ctx ends first.
	running, endHandlers := context.WithCancelCause(context.WithoutCancel(ctx))

	s.mu.Lock()
	if s.started {
		s.mu.Unlock()
		endHandlers(nil)
		logger.Info("Warning: the sharedIndexInformer has started, run more than once is not allowed")
		return
	}
	s.started = true
	r := newReflectorWithOptions(s.lw, s.example, &queueStore{queue: queue, transform: s.transform, shared: s.shared}, cache.ReflectorOptions{
		Logger: &logger, ResyncPeriod: s.resyncCheck, TypeDescription: s.description, Clock: s.clock,
	})
	r.ShouldResync = s.shouldResync
	r.Changed = s.statusChange.Notify
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

// process applies deltas to the store until ctx ends.
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
			s.store.apply(deltas[:n]...)
			s.applied(deltas[:n])
			deltas = deltas[n:]
		}
		done()
	}
}

// untilSync returns the number of deltas before the first resync.
func untilSync(deltas []delta.Delta[item]) int {
	for i := range deltas {
		if deltas[i].Type == delta.Sync {
			return i
		}
	}
	return len(deltas)
}

// applied handles applied deltas: it passes their objects to the mutation
// detector and closes synced after the first list.
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

// shouldResync reports whether the resync of any listener is due. Listeners
// whose resync is not due stop getting updates that change nothing, until it
// is.
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

// resync delivers every object again to the listeners that are due.
func (s *sharedIndexInformer) resync() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listeners {
		if l.isSyncing() {
			l.subscriber.Resync()
		}
	}
}

// AddEventHandler is AddEventHandlerWithOptions without options.
func (s *sharedIndexInformer) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod is AddEventHandlerWithOptions with a resync
// period.
func (s *sharedIndexInformer) AddEventHandlerWithResyncPeriod(handler cache.ResourceEventHandler, resyncPeriod time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return s.AddEventHandlerWithOptions(handler, cache.HandlerOptions{ResyncPeriod: &resyncPeriod})
}

// AddEventHandlerWithOptions registers a handler. If the informer runs, the
// handler first gets every object in the store, as the initial list.
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
	requested = s.clampResyncPeriod(logger, requested)
	l := &listener{
		handler: handler, logger: logger, requested: requested, finished: make(chan struct{}),
		name:   fmt.Sprintf("%s + event handler %s", s.name(), handlerName(handler)),
		period: resyncPeriod(logger, requested, s.resyncCheck),
		// Before the start, handlers get no events for objects that the caller
		// has put into the store.
		subscriber: subscriber.Subscribe(s.store.ix, subscriber.Options{SkipInitial: !s.started}),
	}
	l.next = s.clock.Now().Add(l.period)
	s.listeners = append(s.listeners, l)
	if s.running != nil {
		l.start(s.running, s.handlers)
	}
	return l, nil
}

// clampResyncPeriod returns the resync period that a handler may ask for.
// Before the start, a shorter period than the others makes the informer check
// more often.
func (s *sharedIndexInformer) clampResyncPeriod(logger klog.Logger, period time.Duration) time.Duration {
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

// resyncPeriod returns the period a handler gets if it asks for requested and
// the informer checks every check.
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

// RemoveEventHandler removes a handler. The handler gets no further events;
// cache.ShutDownEventHandler waits for a call that is in progress. Removing a
// handler again does nothing.
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
