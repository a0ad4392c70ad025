package subscriber

import (
	"slices"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// fold keeps the events that take a subscriber from the state it knows to the state
// at the end: the newest event of each object and, if the object has taken the name
// of another that the subscriber knows, the deletion of that one.
type fold[T object.Object] struct {
	events []*indexer.Event[T] // in the order of the newest; nil if folded away
	byKey  map[string]pending
	count  int       // of events that are not nil
	since  time.Time // when the first of the events folded came
}

// pending are the indexes in fold.events of the events of one key; -1: none.
type pending struct {
	deleted int // Deleted: of the object that the subscriber knows
	newest  int // Added or Updated: of the object that exists now
}

func newFold[T object.Object]() *fold[T] { return &fold[T]{byKey: map[string]pending{}} }

func (f *fold[T]) len() int { return f.count }

func (f *fold[T]) add(b *batch[T]) {
	if f.since.IsZero() && len(b.Events) > 0 {
		f.since = b.End.At
	}
	for i := range b.Events {
		f.addEvent(b.Events[i])
	}
	if len(f.events) > 2*f.count+1024 {
		f.compact()
	}
}

// pending returns the key of an event and the indexes of the events of that key.
func (f *fold[T]) pending(e *indexer.Event[T]) (key string, at pending) {
	key = object.Key(e.Object.GetNamespace(), e.Object.GetName())
	at, ok := f.byKey[key]
	if !ok {
		at = pending{deleted: -1, newest: -1}
	}
	return key, at
}

// addEvent folds e into the events of the same key.
func (f *fold[T]) addEvent(e indexer.Event[T]) {
	key, at := f.pending(&e)
	var last *indexer.Event[T]
	if at.newest >= 0 {
		last = f.events[at.newest]
		f.events[at.newest] = nil
		f.count--
		at.newest = -1
	}
	if last != nil && last.Type == indexer.Added && e.Type == indexer.Deleted {
		// The subscriber never knew the object.
		if f.byKey[key] = at; at.deleted < 0 {
			delete(f.byKey, key)
		}
		return
	}
	if last != nil {
		// The subscriber gets e without last.
		e.Old = last.Old
		if last.Type == indexer.Added {
			e.Type, e.Initial = indexer.Added, last.Initial
		}
	}
	if e.Type == indexer.Deleted {
		at.deleted = len(f.events)
	} else {
		at.newest = len(f.events)
	}
	f.byKey[key] = at
	f.events = append(f.events, &e)
	f.count++
}

// compact removes the nils from events.
func (f *fold[T]) compact() {
	f.events = slices.DeleteFunc(f.events, func(e *indexer.Event[T]) bool { return e == nil })
	clear(f.byKey)
	for i, e := range f.events {
		key, at := f.pending(e)
		if e.Type == indexer.Deleted {
			at.deleted = i
		} else {
			at.newest = i
		}
		f.byKey[key] = at
	}
}

// batch returns the events as a batch that ends at the given position.
func (f *fold[T]) batch(end *position[T]) *batch[T] {
	b := &batch[T]{Kind: changelog.Folded, End: end, Events: make([]indexer.Event[T], 0, f.count)}
	for _, e := range f.events {
		if e != nil {
			b.Events = append(b.Events, *e)
		}
	}
	return b
}
