package processor

import (
	"slices"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// fold keeps what somebody who has been told everything before must be told to
// have the state after: the newest event of each object, and the deletion of an
// object whose name another one has taken since.
type fold[T object.Object] struct {
	events []*indexer.Event[T] // in the order of the newest; nil where folded away
	places map[string]place
	count  int
}

// place is where the events of one name are, -1 for none.
type place struct {
	gone int // Deleted: of the object that has been told of
	now  int // Added or Updated: of the object there is now
}

func newFold[T object.Object]() *fold[T] { return &fold[T]{places: map[string]place{}} }

func (f *fold[T]) len() int { return f.count }

func (f *fold[T]) add(b *batch[T]) {
	for i := range b.Events {
		f.event(b.Events[i])
	}
	if len(f.events) > 2*f.count+1024 {
		f.compact()
	}
}

// event folds e into what is there of the same name.
func (f *fold[T]) event(e indexer.Event[T]) {
	key := object.Key(e.Object.GetNamespace(), e.Object.GetName())
	at, ok := f.places[key]
	if !ok {
		at = place{gone: -1, now: -1}
	}
	var last *indexer.Event[T]
	if at.now >= 0 {
		last = f.events[at.now]
		f.events[at.now] = nil
		f.count--
		at.now = -1
	}
	if last != nil && last.Type == indexer.Added && e.Type == indexer.Deleted {
		// It came and went untold.
		if f.places[key] = at; at.gone < 0 {
			delete(f.places, key)
		}
		return
	}
	if last != nil {
		// As seen by one who has not been told of last.
		e.Old = last.Old
		if last.Type == indexer.Added {
			e.Type, e.Initial = indexer.Added, last.Initial
		}
	}
	if e.Type == indexer.Deleted {
		at.gone = len(f.events)
	} else {
		at.now = len(f.events)
	}
	f.places[key] = at
	f.events = append(f.events, &e)
	f.count++
}

// compact closes the gaps.
func (f *fold[T]) compact() {
	f.events = slices.DeleteFunc(f.events, func(e *indexer.Event[T]) bool { return e == nil })
	clear(f.places)
	for i, e := range f.events {
		key := object.Key(e.Object.GetNamespace(), e.Object.GetName())
		at, ok := f.places[key]
		if !ok {
			at = place{gone: -1, now: -1}
		}
		if e.Type == indexer.Deleted {
			at.gone = i
		} else {
			at.now = i
		}
		f.places[key] = at
	}
}

// batch is what is left to tell, ending at the given position.
func (f *fold[T]) batch(end *position[T]) *batch[T] {
	b := &batch[T]{Kind: changelog.Folded, End: end, Events: make([]indexer.Event[T], 0, f.count)}
	for _, e := range f.events {
		if e != nil {
			b.Events = append(b.Events, *e)
		}
	}
	return b
}
