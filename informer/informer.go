package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/broadcast"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

// Informer mirrors a resource of a cluster, or a part of it, and delivers its
// changes. It is created with [New]. All methods are safe for concurrent use,
// before, while and after the informer runs.
type Informer[T Object] struct {
	opts    *options
	store   store[T]
	sources atomic.Pointer[[]scoped] // one, or one per namespace
	codec   codecs
	keep    func(T) bool // nil keeps everything
	custom  bool         // created by NewFromSource
	labels  labelIndexes

	control  chan struct{} // capacity 1: a lock for starting, emptying and SetCluster
	mu       sync.Mutex
	run      *run // the current or the last one; nil before the first
	handlers []*Registration
	changed  broadcast.Signal // notified when the status changes
	loops    map[*loop]struct{}
}

// run is the time of an informer from a start to a stop.
type run struct {
	cancel     context.CancelCauseFunc
	ctx        context.Context
	reflectors []*reflector.Reflector[Object]
	silent     chan struct{} // closed when the store changes no more; handlers may still run
	done       chan struct{} // closed when handlers have returned, too
	err        error         // the refusal, if any; set before silent is closed
	refuse     sync.Once
	handlers   sync.WaitGroup // added to under the informer's lock, while ctx has not ended
}

// New creates an informer of the objects of type T in cluster c. It does no
// network I/O; [Informer.Start] and [Informer.Run] do.
//
// For Go types that are registered in the [Scheme], which are at first those of the
// built-in kinds, the resource follows from the type. For other Go types, for
// *unstructured.Unstructured and for *metav1.PartialObjectMetadata it must be named
// with [Resource]. Objects always have their kind and apiVersion set.
func New[T Object](c *cluster.Cluster, opts ...Option) (*Informer[T], error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.retain > 0 && len(o.namespaces) > 1 {
		return nil, errors.New("informer.Retain: several namespaces have no common resourceVersion to resume from")
	}
	if o.restorer != nil && (len(o.namespaces) > 1 || o.from != "") {
		return nil, errors.New("informer.StartFrom: there must not be several namespaces, which have no common resourceVersion, nor informer.From")
	}
	transform, keep, err := transformAndFilter[T](o)
	if err != nil {
		return nil, err
	}
	codec, decode := codecsFor(o, transform)
	inf := newInformer(o, keep, decode)
	inf.codec = codec
	if err := inf.connect(c); err != nil {
		return nil, err
	}
	return inf, nil
}

func newInformer[T Object](o *options, keep func(T) bool, decode func(Object) T) *Informer[T] {
	inf := &Informer[T]{opts: o, keep: keep, control: make(chan struct{}, 1), loops: map[*loop]struct{}{}}
	inf.store = newStore(o, decode, func() string { return (*inf.sources.Load())[0].target().String() })
	o.panics.log = inf.log
	return inf
}

// scoped is the source of all objects, or of those of one namespace.
type scoped struct {
	source.Source[Object]
	target func() source.Target
}

// connect makes the sources of the next run.
func (inf *Informer[T]) connect(c *cluster.Cluster) error {
	kind, err := kindOf[T](inf.opts)
	if err != nil {
		return err
	}
	namespaces := inf.opts.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var sources []scoped
	for _, namespace := range namespaces {
		src := newKubeSource(c, namespace, inf.opts, reflect.TypeFor[T](), kind, inf.codec, inf.store.Held)
		if inf.opts.restorer != nil {
			src.warm = newWarmStart(inf.opts.restorer, inf.log)
		}
		sources = append(sources, scoped{src, src.target})
	}
	inf.setSources(sources...)
	return nil
}

func (inf *Informer[T]) setSources(sources ...scoped) {
	if inf.keep != nil {
		for i, src := range sources {
			sources[i].Source = filtered{src.Source, func(held Object) bool { return inf.keep(inf.store.object(held)) }, src.target}
		}
	}
	inf.sources.Store(&sources)
}

// SetCluster stops and empties the informer, like [Informer.Empty], and connects
// it to another cluster, or to the same one with another kubeconfig. Handlers,
// indexes and options stay. Start the informer again to continue. It is an error
// for an informer created with [NewFromSource].
func (inf *Informer[T]) SetCluster(ctx context.Context, c *cluster.Cluster) error {
	if inf.custom {
		return fmt.Errorf("informer of %s: it has a source of its own and cannot be connected to cluster %s", inf.target(), c.Name())
	}
	if err := inf.lockControl(ctx); err != nil {
		return err
	}
	defer inf.unlockControl()
	if err := inf.empty(ctx); err != nil {
		return err
	}
	return inf.connect(c)
}

// lockControl waits until no other caller starts, empties or reconnects the
// informer. It is separate from mu because handlers run meanwhile, to receive the
// events of an emptied store, and may call Status or Remove.
func (inf *Informer[T]) lockControl(ctx context.Context) error {
	select {
	case inf.control <- struct{}{}:
		return nil
	default:
	}
	select {
	case inf.control <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is being started or emptied: %w", inf.target(), context.Cause(ctx))
	}
}

func (inf *Informer[T]) unlockControl() { <-inf.control }

// running reports whether a run may still change the store. inf.mu is held.
func (inf *Informer[T]) running() bool { return inf.run != nil && !ended(inf.run.silent) }

// refusal returns the error of an informer that does not run because the server
// refused it, or nil. inf.mu is held.
func (inf *Informer[T]) refusal() error {
	if inf.run == nil || inf.running() {
		return nil
	}
	return inf.run.err
}

// target describes what the informer mirrors, for messages.
func (inf *Informer[T]) target() source.Target {
	t := (*inf.sources.Load())[0].target()
	t.Namespace = strings.Join(inf.opts.namespaces, ",")
	return t
}

// Start starts the informer and waits for its first complete list. ctx bounds
// only that wait: afterwards the informer runs until [Informer.Stop]. To run an
// informer for as long as a context, use [Informer.Run].
//
// If the server refuses the list or does not have the resource, or if the Go type is
// not one for the resource (see [Kind]), Start returns a [*RefusedError], and the
// informer does not run. Other failures, such as a
// server that cannot be reached, are retried until ctx ends: see
// [Informer.Status] and the log. Starting a running informer is an error,
// [ErrStarted]. After an error a handler may still be busy with an event;
// [Informer.Stop] waits for it.
//
// An informer that was stopped resumes at its last version if the server still
// has the changes since, and otherwise lists again. Its handlers receive the
// difference.
func (inf *Informer[T]) Start(ctx context.Context) error {
	r, err := inf.begin(ctx, context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if err = inf.waitForSync(ctx, r); err != nil {
		r.cancel(err)
		<-r.silent // not r.done: a handler may be waiting for this call
	}
	return err
}

// Run starts the informer and waits until it ends. It returns nil when ctx ends
// or the informer is stopped, and an error like [Informer.Start] if the server
// refuses.
func (inf *Informer[T]) Run(ctx context.Context) error {
	r, err := inf.begin(ctx, ctx)
	if err != nil {
		return err
	}
	<-r.done
	return r.err
}

// begin starts the goroutines of a run that lasts as long as runCtx.
func (inf *Informer[T]) begin(ctx, runCtx context.Context) (*run, error) {
	if err := inf.lockControl(ctx); err != nil {
		return nil, err
	}
	defer inf.unlockControl()
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.running() {
		return nil, fmt.Errorf("%s: %w", inf.target(), ErrStarted)
	}
	r := &run{silent: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(runCtx)
	queue := delta.NewQueue[Object]()
	for _, src := range *inf.sources.Load() {
		target := src.target()
		r.reflectors = append(r.reflectors, reflector.New(target, src.Source, queue, inf.reflectorOptions(target)))
	}
	inf.run = r

	var parts, reflectors sync.WaitGroup
	for _, one := range r.reflectors {
		reflectors.Go(func() {
			err := one.Run(r.ctx)
			if refused := (*RefusedError)(nil); errors.As(err, &refused) {
				r.refuse.Do(func() { r.err = err })
				r.cancel(err)
			}
		})
	}
	parts.Go(func() {
		reflectors.Wait()
		queue.Close()
	})
	parts.Go(func() { inf.store.follow(queue) })
	for _, h := range inf.handlers {
		r.start(h)
	}
	go func() {
		<-r.ctx.Done()
		parts.Wait()
		inf.mu.Lock()
		close(r.silent)
		inf.broadcast()
		inf.mu.Unlock()
		r.handlers.Wait()
		close(r.done)
	}()
	inf.broadcast()
	return r, nil
}

func (inf *Informer[T]) reflectorOptions(target source.Target) reflector.Options {
	opts := reflector.Options{PageSize: inf.opts.pageSize, PlainLists: inf.custom || inf.opts.plainLists, From: inf.opts.from, Changed: inf.announce, Logger: inf.opts.logger}
	if len(inf.opts.namespaces) > 1 {
		opts.Scope = target.Namespace
	}
	version, listed := inf.store.Version(target.Namespace)
	if listed && version != 0 || version > object.Version(inf.opts.from) && inf.opts.from != "" {
		opts.From = formatVersion(version)
	}
	return opts
}

// start runs a handler for as long as the run lasts. The informer's lock is held.
func (r *run) start(h *Registration) {
	r.handlers.Add(1)
	h.start(r.ctx, false, r.handlers.Done)
}

// announce wakes the callers that wait for a change of the status.
func (inf *Informer[T]) announce() {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.broadcast()
}

// broadcast is announce while inf.mu is held.
func (inf *Informer[T]) broadcast() {
	inf.changed.Notify()
	if inf.refusal() != nil { // no more events will come: end the loops
		for l := range inf.loops {
			l.cancel()
		}
	}
}

// Stop stops the informer and waits until all its goroutines have ended and its
// handlers have returned from their current events. The store keeps its objects:
// it can be read, and the next start resumes from it; see [Informer.Empty]. The
// error is ctx's, if a handler does not return in time. Stopping an informer that
// does not run does nothing.
func (inf *Informer[T]) Stop(ctx context.Context) error {
	inf.mu.Lock()
	r := inf.run
	inf.mu.Unlock()
	if r == nil {
		return nil
	}
	r.cancel(errStopped)
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop the informer of %s: %w", inf.target(), context.Cause(ctx))
	}
}

var errStopped = errors.New("the informer has been stopped")

// Empty stops the informer and removes all objects from its store, to free their
// memory. Before it returns, handlers receive a Deleted event with Tombstone set
// for each object; the error is ctx's if they take too long. The informer can be
// started again, and then lists again. Start waits for Empty, so handlers must
// not call it meanwhile.
func (inf *Informer[T]) Empty(ctx context.Context) error {
	if err := inf.lockControl(ctx); err != nil {
		return err
	}
	defer inf.unlockControl()
	return inf.empty(ctx)
}

// empty is Empty while the control lock is held.
func (inf *Informer[T]) empty(ctx context.Context) error {
	if err := inf.Stop(ctx); err != nil {
		return err
	}
	inf.store.Empty()
	if inf.opts.shared != nil {
		inf.opts.shared.Forget()
	}
	// Handlers do not run now, but undelivered events would keep the objects
	// alive: deliver them.
	handlers := inf.registered()
	for _, h := range handlers {
		h.start(ctx, true, nil)
	}
	for _, h := range handlers {
		if err := h.wait(ctx); err != nil {
			return fmt.Errorf("empty the informer of %s: %w", inf.target(), err)
		}
	}
	return nil
}

// register adds a handler and, if the informer runs, starts it.
func (inf *Informer[T]) register(r *Registration) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.handlers = append(inf.handlers, r)
	if inf.run != nil && inf.run.ctx.Err() == nil {
		inf.run.start(r)
	}
}

// unregister removes a handler, which may still run.
func (inf *Informer[T]) unregister(r *Registration) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.handlers = slices.DeleteFunc(inf.handlers, func(have *Registration) bool { return have == r })
}

func (inf *Informer[T]) registered() []*Registration {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return slices.Clone(inf.handlers)
}

func (inf *Informer[T]) log() *slog.Logger {
	t := inf.target()
	return inf.opts.logger.With("cluster", t.Cluster, "resource", t.Resource.GroupResource().String())
}
