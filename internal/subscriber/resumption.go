package subscriber

import (
	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// resumption is the part of the first batch that a resumed subscriber has seen: the
// changes up to a version. The zero value has seen nothing.
type resumption[T object.Object] struct{ version uint64 }

// trim removes the events that were seen from the first batch. It returns later
// batches, and relists, as they are.
func (r *resumption[T]) trim(b *batch[T]) *batch[T] {
	seen := r.version
	r.version = 0
	if seen == 0 || b.Kind != changelog.Changes {
		return b
	}
	events := b.Events
	for len(events) > 0 && events[0].ResourceVersion <= seen {
		events = events[1:]
	}
	return &batch[T]{Events: events, Kind: b.Kind, End: b.End}
}
