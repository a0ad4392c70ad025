package subscriber

import (
	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// resumption is the part of the first batch that a resumed subscriber has seen. The
// zero value has seen nothing.
type resumption[T object.Object] struct {
	version uint64 // everything up to it was seen
	// within says that version is greater than that at the beginning of the batch.
	// If the batch is a relist, some of its objects have been seen.
	within bool
}

func resumedAt[T object.Object](at *position[T], seen uint64) resumption[T] {
	return resumption[T]{version: seen, within: at.ResourceVersion < seen}
}

// trim removes the events that were seen from the first batch. It returns later
// batches as they are.
func (r *resumption[T]) trim(b *batch[T]) *batch[T] {
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

// unseen returns the events of a relist that are new to a subscriber that has seen
// everything up to a version between those before and after the relist: the events
// of objects with greater versions, and all deletions, since their versions are not
// known.
func unseen[T object.Object](events []indexer.Event[T], seen uint64) []indexer.Event[T] {
	known := func(e *indexer.Event[T]) bool {
		return e.Type != indexer.Deleted && object.Version(e.Object.GetResourceVersion()) <= seen
	}
	var out []indexer.Event[T]
	for i := range events {
		e := &events[i]
		if e.Type == indexer.Deleted && i+1 < len(events) && known(&events[i+1]) &&
			e.Object.GetName() == events[i+1].Object.GetName() && e.Object.GetNamespace() == events[i+1].Object.GetNamespace() {
			continue // another object took the name, and was seen
		}
		if !known(e) {
			out = append(out, *e)
		}
	}
	return out
}
