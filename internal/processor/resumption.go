package processor

import (
	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// resumption is what a follower that comes back has seen of the first batch that
// it reads. The zero value has seen nothing.
type resumption[T object.Object] struct {
	version uint64 // everything up to it has been seen
	// within says that it lies behind the beginning of the batch: if that is a list,
	// some of its objects have been seen.
	within bool
}

func resumedAt[T object.Object](at *position[T], seen uint64) resumption[T] {
	return resumption[T]{version: seen, within: at.ResourceVersion < seen}
}

// news takes from the first batch what has been seen, and from later ones nothing.
func (r *resumption[T]) news(b *batch[T]) *batch[T] {
	seen, within := r.version, r.within
	*r = resumption[T]{}
	events := b.Events
	switch {
	case seen == 0:
		return b
	case b.Kind == changelog.Changes:
		for len(events) > 0 && events[0].ResourceVersion <= seen {
			events = events[1:]
		}
	case b.Kind == changelog.Relist && within:
		events = unseen(events, seen)
	}
	return &batch[T]{Events: events, Kind: b.Kind, End: b.End}
}

// unseen are the events of a list that are news to somebody who has seen everything
// up to a version between that of the store before the list and that of the list:
// objects of later versions, and what is gone, of which nobody knows since when.
func unseen[T object.Object](events []indexer.Event[T], seen uint64) []indexer.Event[T] {
	known := func(e *indexer.Event[T]) bool {
		return e.Type != indexer.Deleted && object.Version(e.Object.GetResourceVersion()) <= seen
	}
	var out []indexer.Event[T]
	for i := range events {
		e := &events[i]
		if e.Type == indexer.Deleted && i+1 < len(events) && known(&events[i+1]) &&
			e.Object.GetName() == events[i+1].Object.GetName() && e.Object.GetNamespace() == events[i+1].Object.GetNamespace() {
			continue // another object has taken the name, and has been seen
		}
		if !known(e) {
			out = append(out, *e)
		}
	}
	return out
}
