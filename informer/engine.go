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
	"github.com/tidings-io/tidings/internal/processor"
	"github.com/tidings-io/tidings/internal/reflector"
	"github.com/tidings-io/tidings/internal/share"
	"github.com/tidings-io/tidings/internal/source"
)

// engine is the store of an informer and the sources that fill it. It hides
// what the store holds: objects as they are read, or encodings of them.
type engine[T Object] interface {
	// connect makes the sources of the next run.
	connect(*cluster.Cluster) error
	// targets says what they are for: one, or one for each namespace.
	targets() []source.Target
	// run prepares a run with options for the reflector of each target.
	run(func(source.Target) reflector.Options) parts

	get(namespace, name string) (T, bool)
	pin() snapshot[T]
	collect(dst []T, q Query) []T // pins what it reads
	pinSince(version uint64) (snapshot[T], map[string]T, bool)
	confirm(state snapshot[T], version uint64) bool
	latest() latest
	stats() indexer.Stats
	version(namespace string) (version uint64, listed bool)
	follow(processor.Options) follower[T]
	resume(since uint64, opts processor.Options) (follower[T], bool)
	addIndex(name string, values func([]string, T) []string) error
	addLabelIndex(key string) error
	dropLabelIndex(key string)
	hasLabel(key string) bool // any object
	empty()
}

// parts are what works in a run.
type parts struct {
	reflectors []driver
	learnt     func() // the reflectors have ended
	apply      func() // brings the store up to date until they have
}

// driver is a [reflector.Reflector] of whatever the store holds.
type driver interface {
	Run(context.Context) error
	Status() reflector.Status
}

// latest is what there is to know of the newest state without pinning it.
type latest struct {
	resourceVersion uint64
	synced          bool
	objects         int
	superseded      <-chan struct{} // closed once there is a newer one
}

// snapshot is a pinned [indexer.View] of whatever the store holds.
type snapshot[T Object] interface {
	Release()
	state() (resourceVersion uint64, synced bool)
	generation() uint64
	Len() int
	get(key string) (T, bool)
	search(Query) iter.Seq[T]
	collect([]T, Query) []T
	IndexValues(index string) iter.Seq[string]
}

// follower is a [processor.Follower] of whatever the store holds.
type follower[T Object] interface {
	HasSynced() <-chan struct{}
	run(ctx context.Context, drain bool, tell func(Event[T]) bool)
	// call is run for functions, of which at says what they are told.
	call(ctx context.Context, drain bool, to Handlers[T], at *EventType)
	Release()
	Status() processor.Status
}

// newEngine returns the engine that the options ask for.
func newEngine[T Object](o *options) (engine[T], error) {
	transform, keep, err := refinements[T](o)
	if err != nil {
		return nil, err
	}
	_, raw := any(*new(T)).(*codec.Raw)
	switch {
	case o.compact && raw: // which are encodings as they are
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
	sources atomic.Pointer[[]scoped[S]] // one, or one for each namespace
	expand  func(S) T                   // of nothing: nothing
	lent    *mutation.Detector[T]       // nil: what readers do to objects is not looked at
	keep    func(S) bool                // nil: everything is kept
	codec   func(codec.Codec[T]) codec.Codec[S]
}

// scoped is where one scope of an informer comes from.
type scoped[S Object] struct {
	source.Source[S]
	target func() source.Target
}

func newStored[T, S Object](o *options, expand func(S) T) *stored[T, S] {
	opts := indexer.Options[S]{Retain: o.retain}
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
			scope.Source = filtered[S]{src, e.keep}
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
	p := parts{learnt: queue.Close, apply: func() {
		if e.lent != nil {
			defer e.lent.Run()()
		}
		for {
			// What the reflectors have learnt is applied even while stopping, so
			// that the next start can go on from there.
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
			before[key] = e.expand(events[i].Old) // nothing, if it was Added
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

func (e *stored[T, S]) follow(o processor.Options) follower[T] {
	return followed[T, S]{processor.Follow(e.store, o), e, o.Name}
}

func (e *stored[T, S]) resume(since uint64, o processor.Options) (follower[T], bool) {
	f, ok := processor.Resume(e.store, since, o)
	return followed[T, S]{f, e, o.Name}, ok
}

func (e *stored[T, S]) addIndex(name string, values func([]string, T) []string) error {
	return e.store.AddIndex(name, func(out []string, obj S) []string { return values(out, e.expand(obj)) })
}

func (e *stored[T, S]) addLabelIndex(key string) error {
	return e.store.AddIndex(labelled+key, func(values []string, obj S) []string {
		if value, ok := obj.GetLabels()[key]; ok {
			values = append(values, value)
		}
		return values
	})
}

func (e *stored[T, S]) dropLabelIndex(key string) { e.store.DropIndex(labelled + key) }

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

// view is a View of a store that holds an S for each T.
type view[T, S Object] struct {
	*indexer.View[S]
	of *stored[T, S]
}

func (v view[T, S]) state() (uint64, bool) { return v.ResourceVersion, v.Synced }

func (v view[T, S]) generation() uint64 { return v.Generation }

func (v view[T, S]) get(key string) (T, bool) {
	obj, ok := v.Get(key)
	return v.of.expand(obj), ok
}

func (v view[T, S]) search(q Query) iter.Seq[T] {
	return func(yield func(T) bool) {
		search(v.View, q, shortest(v.View, q))(func(_ string, obj S) bool { return yield(v.of.expand(obj)) })
	}
}

func (v view[T, S]) collect(dst []T, q Query) []T {
	if same, ok := any(v.View).(*indexer.View[T]); ok && v.of.lent == nil {
		return collect(same, dst, q) // a store holds the objects themselves, mostly
	}
	found := collect(v.View, nil, q)
	dst = slices.Grow(dst, len(found))
	for _, obj := range found {
		dst = append(dst, v.of.expand(obj))
	}
	return dst
}

// followed is a follower of a store that holds an S for each T.
type followed[T, S Object] struct {
	*processor.Follower[S]
	of   *stored[T, S]
	name string
}

func (f followed[T, S]) run(ctx context.Context, drain bool, tell func(Event[T]) bool) {
	f.Run(ctx, drain, func(e processor.Event[S]) bool {
		out := Event[T]{
			Type: EventType(e.Type), Object: f.of.expand(e.Object),
			InInitialList: e.Initial, Tombstone: e.Unseen, Resumable: e.Resumable, Folded: e.Folded, version: e.ResourceVersion,
		}
		if e.Type == processor.Sync {
			out.Old = out.Object
		} else {
			out.Old = f.of.expand(e.Old)
		}
		if f.of.lent != nil {
			defer f.of.lent.Returned("who follows as "+strconv.Quote(f.name), out.Object, out.Old)
		}
		return tell(out)
	})
}

// call does what Handlers.Handle does, without making an Event, nor an object that
// no function asks for.
func (f followed[T, S]) call(ctx context.Context, drain bool, to Handlers[T], at *EventType) {
	if f.of.lent != nil { // who is told what has to be known
		f.run(ctx, drain, func(e Event[T]) bool {
			*at = e.Type
			to.Handle(e)
			return true
		})
		return
	}
	if same, ok := any(f.Follower).(*processor.Follower[T]); ok {
		// As below, of objects that need not be expanded: nearly always, and twice
		// for each event of each handler.
		same.Run(ctx, drain, func(e processor.Event[T]) bool {
			*at = EventType(e.Type)
			if e.Type == processor.Updated && to.Update != nil {
				to.Update(e.Old, e.Object)
			} else {
				to.Handle(Event[T]{Type: *at, Object: e.Object, Old: e.Old, InInitialList: e.Initial})
			}
			return true
		})
		return
	}
	expand := f.of.expand
	f.Run(ctx, drain, func(e processor.Event[S]) bool {
		*at = EventType(e.Type)
		switch {
		case e.Type == processor.Updated && to.Update != nil: // nearly always
			to.Update(expand(e.Old), expand(e.Object))
		case e.Type == processor.Added && to.Add != nil:
			to.Add(expand(e.Object), e.Initial)
		case e.Type == processor.Sync && to.Update != nil:
			obj := expand(e.Object)
			to.Update(obj, obj)
		case e.Type == processor.Deleted && to.Delete != nil:
			to.Delete(expand(e.Object))
		case e.Type == processor.Synced && to.Synced != nil:
			to.Synced()
		}
		return true
	})
}
