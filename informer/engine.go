package informer

import (
	"context"
	"iter"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/mutation"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/share"
	"github.com/tidings-io/tidings/internal/source"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// engine is the store of an informer and the sources that fill it. The interface
// hides what the store holds: objects of type T, or their encodings.
type engine[T Object] interface {
	// connect makes the sources of the next run.
	connect(*cluster.Cluster) error
	// targets returns the target of each source: one, or one per namespace.
	targets() []source.Target
	// run prepares a run. opts returns the options of the reflector of a target.
	run(opts func(source.Target) reflector.Options) parts

	get(namespace, name string) (T, bool)
	pin() snapshot[T]
	collect(dst []T, q Query) []T
	pinSince(version uint64) (snapshot[T], map[string]T, bool)
	confirm(state snapshot[T], version uint64) bool
	latest() latest
	stats() indexer.Stats
	version(namespace string) (version uint64, listed bool)
	subscribe(subscriber.Options) subscription[T]
	resume(since uint64, opts subscriber.Options) (subscription[T], bool)
	addIndex(name string, index func([]string, T) []string) error
	addLabelIndex(key string) error
	dropLabelIndex(key string)
	hasLabel(key string) bool // whether any object has it
	empty()
}

// parts are what runs in a run.
type parts struct {
	reflectors []runner
	close      func() // to be called when the reflectors have ended
	apply      func() // updates the store until close has been called
}

// runner is a [reflector.Reflector] of whatever the store holds.
type runner interface {
	Run(context.Context) error
	Status() reflector.Status
	Retry()
}

// latest describes the newest state without pinning it.
type latest struct {
	resourceVersion uint64
	synced          bool
	objects         int
	superseded      <-chan struct{} // closed when there is a newer state
}

// state describes a pinned state.
type state struct {
	resourceVersion, generation uint64
	synced                      bool
}

// snapshot is a pinned [indexer.View] of whatever the store holds.
type snapshot[T Object] interface {
	Release()
	state() state
	Len() int
	get(key string) (T, bool)
	search(Query) iter.Seq[T]
	collect([]T, Query) []T
	IndexValues(index string) iter.Seq[string]
}

// subscription is a [subscriber.Subscriber] of whatever the store holds.
type subscription[T Object] interface {
	HasSynced() <-chan struct{}
	// deliver passes events to f until ctx ends or f returns false or, with
	// drain, until there are no more.
	deliver(ctx context.Context, drain bool, f func(Event[T]) bool)
	// call is deliver for functions. It makes no Event, and no object that no
	// function receives. at is set to the type of the current event.
	call(ctx context.Context, drain bool, to Handlers[T], at *EventType)
	Release()
	Status() subscriber.Status
}

// newEngine returns the engine that the options ask for.
func newEngine[T Object](o *options) (engine[T], error) {
	transform, keep, err := transformAndFilter[T](o)
	if err != nil {
		return nil, err
	}
	_, raw := any(*new(T)).(*codec.Raw)
	switch {
	case o.compact && raw: // the objects of the program's server, which are encodings
		o.codec.Pack = codec.NewPacker()
	case o.compact:
		return newCompact(o, transform, keep), nil
	}
	if !o.unshared {
		o.shared = share.New()
	}
	e := newStored[T](o, func(obj T) T { return obj })
	e.keep = keep
	e.codec = func(c codec.Codec[T]) codec.Codec[T] {
		if transform != nil {
			c = codec.Transformed(c, transform)
		}
		if o.shared != nil {
			c = codec.Shared(c, o.shared)
		}
		return c
	}
	return e, nil
}

// stored is an engine whose store holds an S for each T.
type stored[T, S Object] struct {
	opts    *options
	store   *indexer.Indexer[S]
	sources atomic.Pointer[[]scoped[S]] // one, or one per namespace
	expand  func(S) T                   // returns nil for nil
	lent    *mutation.Detector[T]       // nil without DetectMutations
	keep    func(S) bool                // nil keeps everything
	codec   func(codec.Codec[T]) codec.Codec[S]
}

// scoped is the source of all objects, or of those of one namespace.
type scoped[S Object] struct {
	source.Source[S]
	target func() source.Target
}

func newStored[T, S Object](o *options, expand func(S) T) *stored[T, S] {
	opts := indexer.Options[S]{Retain: o.retain, Panicked: o.panics.indexPanicked}
	if len(o.namespaces) > 1 {
		opts.Namespaces = o.namespaces
	}
	if _, ok := any(*new(S)).(*codec.Raw); ok {
		opts.Size = func(obj S) int { return any(obj).(*codec.Raw).Size() }
	}
	e := &stored[T, S]{opts: o, store: indexer.New(opts), expand: expand}
	if o.detect {
		e.lent = mutation.New[T](func() string { return e.targets()[0].String() }, o.report)
		e.expand = func(obj S) T { return e.lent.Lend(expand(obj)) }
	}
	return e
}

func (e *stored[T, S]) connect(c *cluster.Cluster) error {
	namespaces := e.opts.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	var sources []scoped[S]
	for _, namespace := range namespaces {
		src, err := newKubeSource(c, namespace, e.opts, e.codec, e.store.Held)
		if err != nil {
			return err
		}
		scope := scoped[S]{src, src.target}
		if e.keep != nil {
			scope.Source = filtered[S]{src, e.keep, src.target}
		}
		sources = append(sources, scope)
	}
	e.sources.Store(&sources)
	return nil
}

func (e *stored[T, S]) targets() (targets []source.Target) {
	for _, src := range *e.sources.Load() {
		targets = append(targets, src.target())
	}
	return targets
}

func (e *stored[T, S]) run(opts func(source.Target) reflector.Options) parts {
	queue := delta.NewQueue[S]()
	p := parts{close: queue.Close, apply: func() {
		if e.lent != nil {
			defer e.lent.Run()()
		}
		for {
			// Not the context of the run: what the reflectors have received is
			// applied even while stopping, so that the next start resumes there.
			deltas, err := queue.Pop(context.Background())
			if err != nil {
				return
			}
			e.store.Apply(deltas)
		}
	}}
	for _, src := range *e.sources.Load() {
		target := src.target()
		p.reflectors = append(p.reflectors, reflector.New(target, src.Source, queue, opts(target)))
	}
	return p
}

func (e *stored[T, S]) get(namespace, name string) (T, bool) {
	obj, ok := e.store.GetNamed(namespace, name)
	return e.expand(obj), ok
}

func (e *stored[T, S]) pin() snapshot[T] { return view[T, S]{e.store.Pin(), e} }

func (e *stored[T, S]) collect(dst []T, q Query) []T {
	v := view[T, S]{e.store.Pin(), e}
	defer v.Release()
	return v.collect(dst, q)
}

func (e *stored[T, S]) pinSince(version uint64) (snapshot[T], map[string]T, bool) {
	v, events, ok := e.store.PinSince(version)
	if !ok {
		return nil, nil, false
	}
	before := make(map[string]T, len(events))
	for i := range events {
		key := Key(events[i].Object)
		if _, earlier := before[key]; !earlier {
			before[key] = e.expand(events[i].Old) // nil if it was added
		}
	}
	return view[T, S]{v, e}, before, true
}

func (e *stored[T, S]) confirm(state snapshot[T], version uint64) bool {
	return e.store.Confirm(state.(view[T, S]).View, version)
}

func (e *stored[T, S]) latest() latest {
	m := e.store.Latest()
	return latest{m.ResourceVersion, m.Synced, m.Len(), m.Tail().Ready()}
}

func (e *stored[T, S]) stats() indexer.Stats { return e.store.Stats() }

func (e *stored[T, S]) version(namespace string) (uint64, bool) { return e.store.Version(namespace) }

func (e *stored[T, S]) subscribe(o subscriber.Options) subscription[T] {
	return subscribed[T, S]{subscriber.Subscribe(e.store, o), e, o.Name}
}

func (e *stored[T, S]) resume(since uint64, o subscriber.Options) (subscription[T], bool) {
	s, ok := subscriber.Resume(e.store, since, o)
	return subscribed[T, S]{s, e, o.Name}, ok
}

func (e *stored[T, S]) addIndex(name string, index func([]string, T) []string) error {
	return e.store.AddIndex(name, func(out []string, obj S) []string { return index(out, e.expand(obj)) })
}

func (e *stored[T, S]) addLabelIndex(key string) error {
	return e.store.AddIndex(labelIndexPrefix+key, func(values []string, obj S) []string {
		if value, ok := obj.GetLabels()[key]; ok {
			values = append(values, value)
		}
		return values
	})
}

func (e *stored[T, S]) dropLabelIndex(key string) { e.store.DropIndex(labelIndexPrefix + key) }

func (e *stored[T, S]) hasLabel(key string) bool {
	v := e.store.Pin()
	defer v.Release()
	for _, obj := range v.From("", "") {
		if _, ok := obj.GetLabels()[key]; ok {
			return true
		}
	}
	return false
}

func (e *stored[T, S]) empty() {
	e.store.Empty()
	if e.opts.shared != nil {
		e.opts.shared.Forget()
	}
}

// view is an [indexer.View] of a store that holds an S for each T.
type view[T, S Object] struct {
	*indexer.View[S]
	of *stored[T, S]
}

func (v view[T, S]) state() state { return state{v.ResourceVersion, v.Generation, v.Synced} }

func (v view[T, S]) get(key string) (T, bool) {
	obj, ok := v.Get(key)
	return v.of.expand(obj), ok
}

func (v view[T, S]) search(q Query) iter.Seq[T] {
	return func(yield func(T) bool) {
		search(v.View, q, planFor(v.View, q))(func(_ string, obj S) bool { return yield(v.of.expand(obj)) })
	}
}

func (v view[T, S]) collect(dst []T, q Query) []T {
	if same, ok := any(v.View).(*indexer.View[T]); ok && v.of.lent == nil {
		return collect(same, dst, q) // usually, the store holds the objects themselves
	}
	found := collect(v.View, nil, q)
	dst = slices.Grow(dst, len(found))
	for _, obj := range found {
		dst = append(dst, v.of.expand(obj))
	}
	return dst
}

// subscribed is a subscription to a store that holds an S for each T.
type subscribed[T, S Object] struct {
	*subscriber.Subscriber[S]
	of   *stored[T, S]
	name string
}

func (s subscribed[T, S]) deliver(ctx context.Context, drain bool, f func(Event[T]) bool) {
	s.Run(ctx, drain, func(e subscriber.Event[S]) bool {
		out := Event[T]{
			Type: EventType(e.Type), Object: s.of.expand(e.Object),
			InInitialList: e.Initial, Tombstone: e.Unseen, Resumable: e.Resumable, Folded: e.Folded, Relist: e.Relist, version: e.ResourceVersion,
		}
		if e.Type == subscriber.Sync {
			out.Old = out.Object
		} else {
			out.Old = s.of.expand(e.Old)
		}
		if s.of.lent != nil {
			defer s.of.lent.Returned("subscriber "+strconv.Quote(s.name), out.Object, out.Old)
		}
		return f(out)
	})
}

func (s subscribed[T, S]) call(ctx context.Context, drain bool, to Handlers[T], at *EventType) {
	if s.of.lent != nil { // deliver reports what each call received
		s.deliver(ctx, drain, func(e Event[T]) bool {
			*at = e.Type
			to.Handle(e)
			return true
		})
		return
	}
	if same, ok := any(s.Subscriber).(*subscriber.Subscriber[T]); ok {
		// Usually, objects need no expanding, which would be two calls per event
		// and handler.
		same.Run(ctx, drain, func(e subscriber.Event[T]) bool {
			*at = EventType(e.Type)
			to.call(*at, e.Object, e.Old, e.Initial)
			return true
		})
		return
	}
	s.Run(ctx, drain, func(e subscriber.Event[S]) bool {
		*at = EventType(e.Type)
		if !to.handles(*at) {
			return true
		}
		var old T
		if e.Type == subscriber.Updated {
			old = s.of.expand(e.Old)
		}
		to.call(*at, s.of.expand(e.Object), old, e.Initial)
		return true
	})
}
