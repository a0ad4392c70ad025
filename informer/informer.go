package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/source"
)

// Informer mirrors one resource of one cluster, or a part of it, and tells what
// changes. Make one with [New]. All methods may be called from any number of
// goroutines, before, while and after the informer runs.
type Informer[T Object] struct {
	opts   *options
	engine engine[T]
	own    bool // the source is the caller's, not a cluster
	labels labelIndexes

	turn     chan struct{} // holds one: whoever starts, empties or reconnects the informer
	mu       sync.Mutex
	run      *run // the present or the last one; nil before the first
	handlers []*Registration
	changed  chan struct{} // closed and renewed when there is news of the status
	loops    map[*loop]struct{}
}

// run is one life of an informer, from start to stop.
type run struct {
	cancel     context.CancelCauseFunc
	ctx        context.Context
	reflectors []driver
	silent     chan struct{} // closed when nothing more will be learnt; handlers may still be at an event
	done       chan struct{} // closed when handlers have returned, too
	err        error         // why, once silent
	refuse     sync.Once
	handlers   sync.WaitGroup // added to under the informer's lock, while ctx has not ended
}

// New prepares an informer of the objects of cluster c that are of type T. It
// does no network I/O; [Informer.Start] and [Informer.Run] do.
//
// For Go types of Kubernetes kinds the resource follows from the type. For
// *unstructured.Unstructured and *metav1.PartialObjectMetadata it must be named
// with [Resource]. Objects carry their kind and apiVersion in every case.
func New[T Object](c *cluster.Cluster, opts ...Option) (*Informer[T], error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.retain > 0 && len(o.namespaces) > 1 {
		return nil, errors.New("informer.Retain: several namespaces have no common resourceVersion to resume from")
	}
	e, err := newEngine[T](o)
	if err != nil {
		return nil, err
	}
	if err := e.connect(c); err != nil {
		return nil, err
	}
	return newInformer(o, e), nil
}

func newInformer[T Object](o *options, e engine[T]) *Informer[T] {
	return &Informer[T]{opts: o, engine: e, turn: make(chan struct{}, 1), changed: make(chan struct{}), loops: map[*loop]struct{}{}}
}

// SetCluster stops and empties the informer, as [Informer.Empty] does, and
// makes it one of another cluster, or of the same one reached by another
// kubeconfig. Handlers, indexes and options stay. Start it again to go on.
// One made with [NewFromSource] is of no cluster: that is an error.
func (inf *Informer[T]) SetCluster(ctx context.Context, c *cluster.Cluster) error {
	if inf.own {
		return fmt.Errorf("informer of %s: it has a source of its own and cannot be made one of cluster %s", inf.target(), c.Name())
	}
	if err := inf.take(ctx); err != nil {
		return err
	}
	defer inf.give()
	if err := inf.empty(ctx); err != nil {
		return err
	}
	return inf.engine.connect(c)
}

// take waits until nobody else starts, empties or reconnects the informer. It
// is not the lock: handlers are told of an emptied store meanwhile, and may ask
// for the status or remove themselves.
func (inf *Informer[T]) take(ctx context.Context) error {
	select {
	case inf.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case inf.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s is being started or emptied: %w", inf.target(), context.Cause(ctx))
	}
}

func (inf *Informer[T]) give() { <-inf.turn }

// runSilent is closed when no run of the informer learns anything more. It is
// called under the lock.
func (inf *Informer[T]) runSilent() <-chan struct{} {
	if inf.run == nil {
		return alreadyDone
	}
	return inf.run.silent
}

var alreadyDone = func() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}()

// target is what the informer is for.
func (inf *Informer[T]) target() source.Target {
	t := inf.engine.targets()[0]
	t.Namespace = strings.Join(inf.opts.namespaces, ",")
	return t
}

// Start starts the informer and waits until it has its first complete list.
// ctx bounds that wait only: from then on the informer runs until
// [Informer.Stop]. See [Informer.Run] for one that lives as long as a context.
//
// It returns an error, and the informer does not run, if the server refuses the
// list or does not have the resource; the message names the cluster, the
// resource and the verb, and says what would help. Everything else, a server
// that cannot be reached for one, is tried again for as long as ctx allows:
// see [Informer.Status] and the log. Starting a running informer is an error.
// After an error a handler may still be at an event: [Informer.Stop] waits for it.
//
// An informer that was stopped goes on where it was, if the server still can,
// and otherwise lists anew; its handlers see the difference.
func (inf *Informer[T]) Start(ctx context.Context) error {
	r, err := inf.begin(ctx, context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	if err = inf.waitForSync(ctx, r); err != nil {
		r.cancel(err)
		<-r.silent // and not done: handlers may be waiting for us
	}
	return err
}

// Run starts the informer and waits until it ends: nil when ctx ends or the
// informer is stopped, an error as for [Informer.Start] if it is refused.
func (inf *Informer[T]) Run(ctx context.Context) error {
	r, err := inf.begin(ctx, ctx)
	if err != nil {
		return err
	}
	<-r.done
	return r.err
}

// ErrStarted is what starting an informer that runs ends with.
var ErrStarted = errors.New("the informer has been started already")

// begin starts the goroutines of a run that lasts as long as runCtx.
func (inf *Informer[T]) begin(ctx, runCtx context.Context) (*run, error) {
	if err := inf.take(ctx); err != nil {
		return nil, err
	}
	defer inf.give()
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if !ended(inf.runSilent()) {
		return nil, fmt.Errorf("%s: %w", inf.target(), ErrStarted)
	}
	r := &run{silent: make(chan struct{}), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancelCause(runCtx)
	work := inf.engine.run(func(target source.Target) reflector.Options {
		opts := reflector.Options{PageSize: inf.opts.pageSize, PlainLists: inf.own, From: inf.opts.from, Changed: inf.announce, Logger: inf.opts.logger}
		if len(inf.opts.namespaces) > 1 {
			opts.Scope = target.Namespace
		}
		version, listed := inf.engine.version(target.Namespace)
		if listed && version != 0 || version > object.Version(inf.opts.from) && inf.opts.from != "" {
			opts.From = strconv.FormatUint(version, 10)
		}
		return opts
	})
	r.reflectors = work.reflectors
	inf.run = r

	var parts, readers sync.WaitGroup
	for _, f := range r.reflectors {
		readers.Go(func() {
			err := f.Run(r.ctx)
			if refused := (*reflector.RefusedError)(nil); errors.As(err, &refused) {
				r.refuse.Do(func() { r.err = err })
				r.cancel(err)
			}
		})
	}
	parts.Go(func() {
		readers.Wait()
		work.learnt()
	})
	parts.Go(work.apply)
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

// start lets a handler run for as long as the run lasts, under the lock.
func (r *run) start(h *Registration) {
	r.handlers.Add(1)
	h.start(r.ctx, false, r.handlers.Done)
}

// announce tells those who wait that the status has changed.
func (inf *Informer[T]) announce() {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.broadcast()
}

// broadcast is announce under the lock.
func (inf *Informer[T]) broadcast() {
	close(inf.changed)
	inf.changed = make(chan struct{})
	if inf.run != nil && ended(inf.runSilent()) && inf.run.err != nil { // nothing more will come: let the loops end
		for l := range inf.loops {
			l.cancel()
		}
	}
}

// Stop ends the informer and waits until nothing of it runs any more: handlers
// have returned from the events they were at. The store keeps what it has, to
// be read or to go on from; see [Informer.Empty]. The error is ctx's, if a
// handler does not return in time. Stopping an informer that does not run does
// nothing.
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

// Empty stops the informer and takes everything out of its store, so that the
// memory can be used for other things. Handlers are told of each object as
// Deleted, with Tombstone set, before Empty returns; the error is ctx's if they
// take too long. The informer can be started again and then lists anew; whoever
// starts it meanwhile waits, so handlers must not.
func (inf *Informer[T]) Empty(ctx context.Context) error {
	if err := inf.take(ctx); err != nil {
		return err
	}
	defer inf.give()
	return inf.empty(ctx)
}

// empty is Empty for who has taken the turn.
func (inf *Informer[T]) empty(ctx context.Context) error {
	if err := inf.Stop(ctx); err != nil {
		return err
	}
	inf.engine.empty()
	// Handlers do not run now, but what they have not been told would keep the
	// objects alive: tell them.
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

// register adds a handler, and starts it if the informer runs.
func (inf *Informer[T]) register(r *Registration) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.handlers = append(inf.handlers, r)
	if inf.run != nil && inf.run.ctx.Err() == nil {
		inf.run.start(r)
	}
}

func (inf *Informer[T]) forget(r *Registration) {
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
