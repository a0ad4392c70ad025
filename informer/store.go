package informer

import (
	"context"
	"math"
	"slices"
	"strconv"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/mutation"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// store is the store of an informer. It holds objects of type T or, in compact mode,
// their encodings. What is read from it is expanded to T.
type store[T Object] struct {
	*indexer.Indexer[Object]
	read   func(Object) T        // what expand does, if it is more than a type assertion
	decode func(Object) T        // what object does, if it is more than that
	lent   *mutation.Detector[T] // nil without DetectMutations
}

// newStore returns an empty store. decode is nil if it is to hold objects of type T.
// target describes its contents, for messages.
func newStore[T Object](o *options, decode func(Object) T, target func() string) store[T] {
	opts := indexer.Options[Object]{Retain: o.retain, Panicked: o.panics.indexPanicked}
	if len(o.namespaces) > 1 {
		opts.Namespaces = o.namespaces
	}
	if _, raw := any(*new(T)).(*codec.Raw); raw || decode != nil {
		opts.Size = func(held Object) int { return held.(*codec.Raw).Size() }
	}
	if o.owners {
		opts.Owners = appendOwners
	}
	s := store[T]{Indexer: indexer.New(opts), read: decode, decode: decode}
	if o.detect {
		lent := mutation.New[T](target, o.report)
		s.lent, s.read = lent, func(held Object) T { return lent.Lend(s.object(held)) }
	}
	return s
}

// follow applies the deltas of a queue until it has been closed.
func (s *store[T]) follow(queue *delta.Queue[Object]) {
	if s.lent != nil {
		defer s.lent.Run()()
	}
	for {
		// Not the context of the run: what the reflectors have received is applied
		// even while stopping, so that the next start resumes there.
		deltas, err := queue.Pop(context.Background())
		if err != nil {
			return
		}
		s.Apply(deltas)
	}
}

// expand returns the object for a reader, nil for nil. It is small enough to be
// inlined.
func (s *store[T]) expand(held Object) (obj T) {
	if s.read != nil {
		return s.read(held)
	}
	obj, _ = held.(T)
	return
}

// object returns the object for the informer itself.
func (s *store[T]) object(held Object) T {
	if s.decode != nil {
		return s.decode(held)
	}
	obj, _ := held.(T)
	return obj
}

// list is collect for the newest state.
func (s *store[T]) list(dst []T, q Query) []T {
	v := s.Pin()
	defer v.Release()
	return s.collect(dst, v, q)
}

// collect appends to dst the objects of v that match q, in the order of keys.
func (s *store[T]) collect(dst []T, v *indexer.View[Object], q Query) []T {
	p := planFor(v, q)
	if !p.exact() || q.Limit != 0 {
		return s.filter(dst, v, q, p)
	}
	if dst == nil && q.Namespace == "" && q.After == "" {
		n := v.Len()
		if p.index != "" { // counting costs little compared to growing the result
			n = v.IndexedCount(p.index, p.value, math.MaxInt)
		}
		dst = make([]T, 0, n)
	}
	add := func(w indexer.Window[Object]) bool {
		n := len(dst)
		dst = slices.Grow(dst, w.Len())[:n+w.Len()]
		for i := range dst[n:] {
			dst[n+i] = s.expand(w.At(i))
		}
		return true
	}
	if p.index == "" {
		v.Windows(q.prefix(), q.After)(add)
	} else {
		v.IndexedWindows(p.index, p.value, q.prefix(), q.After)(add)
	}
	return dst
}

// filter is collect for a plan that looks at each candidate. It is a function of its own
// because its loop moves dst to the heap.
func (s *store[T]) filter(dst []T, v *indexer.View[Object], q Query, p plan) []T {
	for _, held := range search(v, q, p) {
		dst = append(dst, s.expand(held))
	}
	return dst
}

func (inf *Informer[T]) subscription(s *subscriber.Subscriber[Object], o subscriber.Options) subscription[T] {
	return subscription[T]{s, &inf.store, o.Name}
}

// subscription delivers the events of a store.
type subscription[T Object] struct {
	*subscriber.Subscriber[Object]
	store *store[T]
	name  string
}

// deliver passes events to f until ctx ends or f returns false or, with drain,
// until there are no more.
func (s subscription[T]) deliver(ctx context.Context, drain bool, f func(Event[T]) bool) {
	s.Run(ctx, drain, func(e subscriber.Event[Object]) bool {
		out := Event[T]{
			Type: EventType(e.Type), Object: s.store.expand(e.Object),
			InInitialList: e.Initial, Tombstone: e.Unseen, Resumable: e.Resumable, Folded: e.Folded, Relist: e.Relist, version: e.ResourceVersion,
		}
		if e.Type == subscriber.Sync {
			out.Old = out.Object
		} else {
			out.Old = s.store.expand(e.Old)
		}
		if lent := s.store.lent; lent != nil {
			defer lent.Returned("subscriber "+strconv.Quote(s.name), out.Object, out.Old)
		}
		return f(out)
	})
}

// call is deliver for functions. It makes no Event, and decodes no object that no
// function receives. at is set to the type of the current event.
func (s subscription[T]) call(ctx context.Context, drain bool, to *Handlers[T], at *EventType) {
	s.Run(ctx, drain, func(e subscriber.Event[Object]) bool {
		if *at = EventType(e.Type); !to.handles(*at) {
			return true
		}
		var old T
		if e.Type == subscriber.Updated {
			old = s.store.expand(e.Old)
		}
		to.call(*at, s.store.expand(e.Object), old, e.Initial)
		return true
	})
}
