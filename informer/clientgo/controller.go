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

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/processor"
)

// controller runs a reflector and whatever takes in what it learns. It is a
// cache.Controller (client-go's controller.go).
type controller struct {
	lw        cache.ListerWatcher
	example   runtime.Object
	options   cache.ReflectorOptions
	configure func(*reflector)
	open      func(context.Context) cache.ReflectorStore // what the reflector writes to
	stop      func()                                     // when the context ends
	process   func(context.Context)                      // until the context ends
	synced    cache.DoneChecker
	loop      *loop // nil: queue, store and processing are the caller's
	id        cache.InformerNameAndResource
	news      news // of the status

	mu        sync.Mutex
	reflector *reflector
}

var _ cache.Controller = &controller{}

// Run is RunWithContext with a channel to stop it.
func (c *controller) Run(stopCh <-chan struct{}) { c.RunWithContext(wait.ContextForChannel(stopCh)) }

// RunWithContext lists, watches and processes until ctx ends, and returns when
// nothing of the controller runs any more. A panic while processing comes out
// of it. It must be called once.
func (c *controller) RunWithContext(ctx context.Context) {
	defer utilruntime.HandleCrashWithContext(ctx)
	context.AfterFunc(ctx, c.stop)
	logger := klog.FromContext(ctx)
	opts := c.options
	opts.Logger = &logger
	r := newReflectorWithOptions(c.lw, c.example, c.open(ctx), opts)
	c.configure(r)
	r.Changed = c.news.announce
	c.mu.Lock()
	c.reflector = r
	c.mu.Unlock()
	var source sync.WaitGroup
	source.Go(func() { r.RunWithContext(ctx) })
	wait.UntilWithContext(ctx, c.process, time.Second)
	source.Wait() // not deferred: a panic must not wait for the source
}

// HasSynced says that the first complete list has been processed.
func (c *controller) HasSynced() bool { return cache.IsDone(c.synced) }

// HasSyncedChecker is HasSynced to wait for.
func (c *controller) HasSyncedChecker() cache.DoneChecker { return c.synced }

// LastSyncResourceVersion is the last version the source has told of.
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
// has what comes out of it processed, as cache.New does. Queue, store and
// processing are the caller's; what is ours is the reflector.
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

// NewInformerWithOptions returns a store and a controller that keeps it and
// tells one handler what happens, as cache.NewInformerWithOptions does. The
// handler is called by the goroutine that runs the controller, after the store
// has changed: no later version of the object it is told of is in the store yet.
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

// maxBatch is how many changes the store may be ahead of the one handler of a
// controller (client-go's the_real_fifo.go, defaultBatchSize).
const maxBatch = 1000

// maxQueued is how many changes may wait for the one handler of a controller
// before no more are read from the source. client-go's queue takes none while the
// handler is at one, or 2,000.
const maxQueued = 2 * maxBatch

// loop is the processing of an informer with one handler.
type loop struct {
	store    *store
	queue    *delta.Queue[item]
	follower *processor.Follower[item]
	handler  cache.ResourceEventHandler
	metrics  metrics
	synced   chan struct{}
	pending  []delta.Delta[item] // popped and not taken in yet
	waiting  atomic.Int64        // how many those are
	popped   news                // there may be room in the queue
	listed   bool                // the first list has been taken in
}

func newInformer(options cache.InformerOptions) (*store, cache.Controller) {
	s := newStore(cache.DeletionHandlingMetaNamespaceKeyFunc, options.Indexers, storeMetrics(options.Identifier, options.InformerMetricsProvider))
	l := &loop{
		store:    s,
		queue:    delta.NewQueue[item](),
		follower: processor.Follow(s.ix, processor.Options{News: true}),
		handler:  options.Handler,
		metrics:  newMetrics(options.Identifier, options.InformerMetricsProvider),
		synced:   make(chan struct{}),
	}
	return s, &controller{
		lw: options.ListerWatcher, example: options.ObjectType,
		options:   cache.ReflectorOptions{ResyncPeriod: options.ResyncPeriod, MinWatchTimeout: options.MinWatchTimeout},
		configure: func(*reflector) {},
		open: func(ctx context.Context) cache.ReflectorStore {
			return &inlet{queue: l.queue, transform: options.Transform, room: func() { l.waitForRoom(ctx) }}
		},
		loop: l, id: options.Identifier,
		stop:    l.queue.Close,
		process: l.run,
		synced:  checker{fmt.Sprintf("Informer %T", options.ObjectType), l.synced},
	}
}

// run takes in what comes, and tells the handler, until ctx ends.
func (l *loop) run(ctx context.Context) {
	l.tellAll(ctx) // what a panic has left untold
	for ctx.Err() == nil {
		if len(l.pending) == 0 {
			deltas, err := l.queue.Pop(ctx)
			if err != nil {
				return
			}
			l.pending = deltas
			l.popped.announce()
		}
		n := together(l.pending)
		batch := l.pending[:n]
		l.pending = l.pending[n:]
		l.waiting.Store(int64(len(l.pending)))
		done := l.metrics.batch(len(l.pending) + n)
		if batch[0].Type == delta.Sync {
			l.follower.Resync()
		} else {
			l.store.follow(batch)
		}
		l.listed = l.listed || batch[0].Type == delta.Replaced
		l.tellAll(ctx)
		done()
	}
}

// waitForRoom keeps a source waiting that is far ahead of the handler, until ctx
// ends: it then reads no more from its connection, as with client-go's queue.
func (l *loop) waitForRoom(ctx context.Context) {
	for l.queue.Len() >= maxQueued {
		popped := l.popped.changed()
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

// tellAll tells the handler all there is to tell.
func (l *loop) tellAll(ctx context.Context) {
	l.follower.Run(ctx, true, func(e processor.Event[item]) bool {
		deliver(l.handler, e)
		return true
	})
	if l.listed && ctx.Err() == nil && !cache.IsDone(checker{done: l.synced}) {
		close(l.synced)
	}
}

// together is how many of the deltas may be applied before the handler is told
// of them: no two of one object, and lists and resyncs alone.
func together(deltas []delta.Delta[item]) int {
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
