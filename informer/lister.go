package informer

import (
	"iter"

	"github.com/tidings-io/tidings/internal/object"
)

// Lister reads objects from memory: an [Informer] reads the newest state, a
// [View] a pinned one. What it returns is shared with all other readers and must
// not be modified.
type Lister[T Object] interface {
	// Get returns the object with the given name. The namespace is empty for
	// resources that have none.
	Get(namespace, name string) (T, bool)
	// List returns the objects that match, ordered by namespace and name.
	List(Query) []T
	// All yields the objects that match, ordered by namespace and name.
	All(Query) iter.Seq[T]
}

// Key returns the key of an object in a store: namespace/name, or the name alone
// if there is no namespace. Stores are ordered by key.
func Key(obj Object) string { return object.Key(obj.GetNamespace(), obj.GetName()) }

// Get returns the newest version of an object. It takes no lock and makes no
// request: an object that the informer has not seen yet is not found.
func (inf *Informer[T]) Get(namespace, name string) (T, bool) {
	held, ok := inf.store.GetNamed(namespace, name)
	return inf.store.expand(held), ok
}

// List returns the objects that match q, ordered by namespace and name. They
// belong to one state of the store.
func (inf *Informer[T]) List(q Query) []T { return inf.Append(nil, q) }

// Append appends to dst what [Informer.List] returns. A caller that lists often
// and reuses dst[:0] leaves no garbage if the query selects everything or one
// value of one label. Objects in dst stay in memory as long as they are there.
func (inf *Informer[T]) Append(dst []T, q Query) []T {
	out := inf.store.list(dst, q)
	inf.indexLabels(q.Labels, len(out) > len(dst))
	return out
}

// All yields the objects that match q, ordered by namespace and name, as they
// were when the loop began, however long it takes.
func (inf *Informer[T]) All(q Query) iter.Seq[T] {
	return func(yield func(T) bool) {
		found := false
		func() {
			v := inf.View()
			defer v.Release()
			v.All(q)(func(o T) bool {
				found = true
				return yield(o)
			})
		}()
		inf.indexLabels(q.Labels, found)
	}
}
