package clientgo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/internal/broadcast"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// controller is a cache.Controller (client-go's controller.go). It runs a
// reflector and processes the deltas that the reflector writes.
type controller struct {
	lw           cache.ListerWatcher
	example      runtime.Object
	options      cache.ReflectorOptions
	configure    func(*reflector)                           // called before the reflector runs
	open         func(context.Context) cache.ReflectorStore // returns the store that the reflector writes to
	stop         func()                                     // called when the context ends
	process      func(context.Context)                      // runs until the context ends
	synced       cache.DoneChecker
	loop         *processLoop // nil if queue, store and processing are the caller's
	id           cache.InformerNameAndResource
	statusChange broadcast.Signal

	mu        sync.Mutex
	reflector *reflector
}

var _ cache.Controller = &controller{}

// Run is RunWithContext with a stop channel.
func (c *controller) Run(stopCh <-chan struct{}) { c.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext lists, watches and processes until ctx ends. It returns when
// all goroutines of the controller have ended, and passes on a panic of the
// processing. It must be called once.
func (c *controller) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	context.AfterFunc(ctx, c.stop)
	logger := klog.FromContext(ctx)
	opts := c.options
	opts.Logger = &logger
	r := newReflectorWithOptions(c.lw, c.example, c.open(ctx), opts)
	c.configure(r)
	r.Changed = c.statusChange.Notify
	c.mu.Lock()
	c.reflector = r
	c.mu.Unlock()
	var source sync.WaitGroup
	source.Go(func() { r.RunWithContext(ctx) })
	wait.UntilWithContext(ctx, c.process, time.Second)
	source.Wait() // not deferred: a panic must not wait for the source
}

// HasSynced reports whether the first complete list has been processed.
func (c *controller) HasSynced() bool { return cache.IsDone(c.synced) }

// HasSyncedChecker returns a checker to wait for HasSynced.
func (c *controller) HasSyncedChecker() cache.DoneChecker { return c.synced }

// LastSyncResourceVersion returns the last version received from the source.
func (c *controller) LastSyncResourceVersion() string {
	c.mu.Lock()
	r := c.reflector
	c.mu.Unlock()
	if r == nil {
		return ""
	}
	return r.LastSyncResourceVersion()
}

// New returns a controller that fills the queue of c from its ListerWatcher and
// processes what is popped from it, as cache.New does. Queue, store and
// processing are the caller's; only the reflector is this package's.
func New(c *cache.Config) cache.Controller {
	config := *c
	out := &controller{
		lw: config.ListerWatcher, example: config.ObjectType,
		options: cache.ReflectorOptions{
			ResyncPeriod:    config.FullResyncPeriod,
			MinWatchTimeout: config.MinWatchTimeout,
			TypeDescription: config.ObjectDescription,
		},
		open:   func(context.Context) cache.ReflectorStore { return config.Queue },
		stop:   config.Queue.Close,
		synced: config.Queue.HasSyncedChecker(),
	}
	out.configure = func(r *reflector) {
		r.ShouldResync = config.ShouldResync
		r.WatchListPageSize = config.WatchListPageSize
		switch {
		case config.WatchErrorHandler != nil:
			r.onError = func(_ context.Context, upstream *cache.Reflector, err error) { config.WatchErrorHandler(upstream, err) }
		case config.WatchErrorHandlerWithContext != nil:
			r.onError = config.WatchErrorHandlerWithContext
		}
	}
	batches, _ := config.Queue.(cache.QueueWithBatch)
	out.process = func(ctx context.Context) {
		for ctx.Err() == nil {
			var err error
			if batches != nil && config.ProcessBatch != nil {
				err = batches.PopBatch(config.ProcessBatch, cache.PopProcessFunc(config.Process))
			} else {
				_, err = config.Queue.Pop(cache.PopProcessFunc(config.Process))
			}
			if errors.Is(err, cache.ErrFIFOClosed) {
				return
			}
		}
	}
	return out
}

// NewInformerWithOptions returns a store, and a controller that fills the store
// and calls one handler, as cache.NewInformerWithOptions does. The goroutine
// that runs the controller calls the handler after it has changed the store.
// While the handler runs, the store does not yet hold a later version of that
// object.
func NewInformerWithOptions(options cache.InformerOptions) (cache.Store, cache.Controller) {
	return newInformer(options)
}

// NewInformer is [NewInformerWithOptions] for a handler and a resync period.
func NewInformer(lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler) (cache.Store, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h, ResyncPeriod: resyncPeriod})
}

// NewIndexerInformer is [NewInformer] with indexes.
func NewIndexerInformer(lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler, indexers cache.Indexers) (cache.Indexer, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h, ResyncPeriod: resyncPeriod, Indexers: indexers})
}

// NewTransformingInformer is [NewInformer] with a transform.
func NewTransformingInformer(lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler, transformer cache.TransformFunc) (cache.Store, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h, ResyncPeriod: resyncPeriod, Transform: transformer})
}

// NewTransformingIndexerInformer is [NewIndexerInformer] with a transform.
func NewTransformingIndexerInformer(lw cache.ListerWatcher, objType runtime.Object, resyncPeriod time.Duration, h cache.ResourceEventHandler, indexers cache.Indexers, transformer cache.TransformFunc) (cache.Indexer, cache.Controller) {
	return newInformer(cache.InformerOptions{ListerWatcher: lw, ObjectType: objType, Handler: h, ResyncPeriod: resyncPeriod, Indexers: indexers, Transform: transformer})
}

// maxBatch is how many changes the store may be ahead of the only handler of a
// controller (defaultBatchSize in client-go's the_real_fifo.go).
const maxBatch = 1000

// maxQueued is how many changes may wait for the only handler of a controller
// before the source stops reading. client-go's queue accepts none while the
// handler runs, or 2,000.
const maxQueued = 2 * maxBatch

// processLoop processes the deltas of an informer with one handler.
type processLoop struct {
	store      *store
	queue      *delta.Queue[item]
	subscriber *subscriber.Subscriber[item]
	handler    cache.ResourceEventHandler
	metrics    metrics
	synced     chan struct{}
	pending    []delta.Delta[item] // popped, but not applied yet
	waiting    atomic.Int64        // len(pending), for the status
	popped     broadcast.Signal    // after each pop: the queue may have space
	listed     bool                // the first list has been applied
}

func newInformer(options cache.InformerOptions) (*store, cache.Controller) {
	s := newStore(cache.DeletionHandlingMetaNamespaceKeyFunc, options.Indexers, storeMetrics(options.Identifier, options.InformerMetricsProvider))
	l := &processLoop{
		store:      s,
		queue:      delta.NewQueue[item](),
		subscriber: subscriber.Subscribe(s.ix, subscriber.Options{SkipInitial: true}),
		handler:    options.Handler,
		metrics:    newMetrics(options.Identifier, options.InformerMetricsProvider),
		synced:     make(chan struct{}),
	}
	return s, &controller{
		lw: options.ListerWatcher, example: options.ObjectType,
		options:   cache.ReflectorOptions{ResyncPeriod: options.ResyncPeriod, MinWatchTimeout: options.MinWatchTimeout},
		configure: func(*reflector) {},
		open: func(ctx context.Context) cache.ReflectorStore {
			return &queueStore{queue: l.queue, transform: options.Transform, waitUntilSpace: func() { l.waitForSpace(ctx) }}
		},
		loop: l, id: options.Identifier,
		stop:    l.queue.Close,
		process: l.run,
		synced:  doneChecker{fmt.Sprintf("Informer %T", options.ObjectType), l.synced},
	}
}

// run applies deltas and calls the handler until ctx ends.
func (l *processLoop) run(ctx context.Context) {
	l.deliverAll(ctx) // events left over from a run that panicked
	for ctx.Err() == nil {
		if len(l.pending) == 0 {
			deltas, err := l.queue.Pop(ctx)
			if err != nil {
				return
			}
			l.pending = deltas
			l.popped.Notify()
		}
		n := batchLen(l.pending)
		batch := l.pending[:n]
		l.pending = l.pending[n:]
		l.waiting.Store(int64(len(l.pending)))
		done := l.metrics.batch(len(l.pending) + n)
		if batch[0].Type == delta.Sync {
			l.subscriber.Resync()
		} else {
			l.store.apply(batch...)
		}
		l.listed = l.listed || batch[0].Type == delta.Replaced
		l.deliverAll(ctx)
		done()
	}
}

// waitForSpace blocks a source that is maxQueued deltas ahead of the handler,
// until ctx ends. The source then stops reading from its connection, as with
// client-go's queue.
func (l *processLoop) waitForSpace(ctx context.Context) {
	for l.queue.Len() >= maxQueued {
		popped := l.popped.Next()
		if l.queue.Len() < maxQueued {
			return
		}
		select {
		case <-popped:
		case <-ctx.Done():
			return
		}
	}
}

// deliverAll calls the handler for all outstanding events.
func (l *processLoop) deliverAll(ctx context.Context) {
	l.subscriber.Run(ctx, true, func(e subscriber.Event[item]) bool {
		deliver(l.handler, e)
		return true
	})
	if l.listed && ctx.Err() == nil && !cache.IsDone(doneChecker{done: l.synced}) {
		close(l.synced)
	}
}

// batchLen returns how many of the deltas may be applied before the handler
// gets their events: no two deltas of one object, and each list and resync
// alone.
func batchLen(deltas []delta.Delta[item]) int {
	if len(deltas) == 1 {
		return 1
	}
	keys := map[string]bool{}
	for i := range deltas {
		switch d := &deltas[i]; d.Type {
		case delta.Replaced, delta.Sync:
			return max(i, 1)
		case delta.Bookmark:
		default:
			key := d.Object.key()
			if i >= maxBatch || keys[key] {
				return i
			}
			keys[key] = true
		}
	}
	return len(deltas)
}
