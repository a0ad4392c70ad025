package informer

import (
	"context"
	"iter"

	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// View is a pinned state of an informer, see [Informer.View]. It is a [Lister].
type View[T Object] struct {
	pinned *indexer.View[Object]
	store  *store[T]
}

// View pins the current state. Reading it never blocks writers or other readers.
// The informer keeps superseded versions of objects for it until [View.Release],
// which must be called.
func (inf *Informer[T]) View() *View[T] { return &View[T]{inf.store.Pin(), &inf.store} }

// ViewAt is like [Informer.View], but first waits for a state at least as new as
// resourceVersion, see [Informer.WaitFor].
func (inf *Informer[T]) ViewAt(ctx context.Context, resourceVersion string) (*View[T], error) {
	if err := inf.WaitFor(ctx, resourceVersion); err != nil {
		return nil, err
	}
	return inf.View(), nil
}

// Release unpins the state. The view must not be read afterwards.
func (v *View[T]) Release() { v.pinned.Release() }

// ResourceVersion is the version of the state, as in a list from the API server.
// It is empty before the first list, and if the server's versions are not
// decimal numbers.
func (v *View[T]) ResourceVersion() string { return formatVersion(v.pinned.ResourceVersion) }

// Synced reports whether the informer had a complete list.
func (v *View[T]) Synced() bool { return v.pinned.Synced }

// Len is the number of objects.
func (v *View[T]) Len() int { return v.pinned.Len() }

// Get implements [Lister].
func (v *View[T]) Get(namespace, name string) (T, bool) {
	held, ok := v.pinned.Get(object.Key(namespace, name))
	return v.store.expand(held), ok
}

// List implements [Lister].
func (v *View[T]) List(q Query) []T { return v.Append(nil, q) }

// Append appends to dst what [View.List] returns, like [Informer.Append].
func (v *View[T]) Append(dst []T, q Query) []T { return v.store.collect(dst, v.pinned, q) }

// All implements [Lister].
func (v *View[T]) All(q Query) iter.Seq[T] {
	return func(yield func(T) bool) {
		search(v.pinned, q, planFor(v.pinned, q))(func(_ string, held Object) bool { return yield(v.store.expand(held)) })
	}
}
