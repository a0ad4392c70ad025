package informer

import (
	"iter"

	"github.com/tidings-io/tidings/internal/object"
)

// Lister reads objects from memory: the newest with [Informer], those of one
// moment with [View]. What it returns is shared with every other reader and
// must not be modified.
type Lister[T Object] interface {
	// Get returns the object with the given name. The namespace is empty for
	// resources that have none.
	Get(namespace, name string) (T, bool)
	// List returns the objects that match, ordered by namespace and name.
	List(Query) []T
	// All yields the objects that match, ordered by namespace and name.
	All(Query) iter.Seq[T]
}

// Key names an object in a store: namespace/name, or the name alone where
// there is no namespace. Stores are ordered by it.
func Key(obj Object) string { return object.Key(obj.GetNamespace(), obj.GetName()) }

// Get returns the newest version of an object. It takes no lock and makes no
// request: an object the informer has not seen yet is not there.
func (inf *Informer[T]) Get(namespace, name string) (T, bool) {
	return inf.engine.get(namespace, name)
}

// List returns the objects that match q, ordered by namespace and name, as they
// were at one moment.
func (inf *Informer[T]) List(q Query) []T { return inf.Append(nil, q) }

// Append appends to dst what [Informer.List] returns. Whoever lists again and
// again and gives back dst[:0] leaves nothing to the garbage collector, if the
// query is of nothing or of one value of one label; objects in dst stay in memory as
// long as they are there.
func (inf *Informer[T]) Append(dst []T, q Query) []T {
	out := inf.engine.collect(dst, q)
	inf.indexLabels(q, len(out) > len(dst))
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
		inf.indexLabels(q, found)
	}
}

// View pins the state of this moment to be read at leisure. Writers and other
// readers do not notice; the informer keeps the superseded versions of objects
// until [View.Release], which must be called.
func (inf *Informer[T]) View() *View[T] { return &View[T]{inf.engine.pin()} }

// View is the state of an informer at one moment. It is a [Lister].
type View[T Object] struct{ pinned snapshot[T] }

// Release ends the view, which must not be read any more.
func (v *View[T]) Release() { v.pinned.Release() }

// ResourceVersion is the version of the state, as a list of the API server would
// give it. Empty before the first list and where the server's versions are
// not decimal numbers.
func (v *View[T]) ResourceVersion() string {
	version, _ := v.pinned.state()
	return Event[T]{version: version}.ResourceVersion()
}

// Synced says whether the informer had a complete list.
func (v *View[T]) Synced() bool {
	_, synced := v.pinned.state()
	return synced
}

// Generation says which objects the view sees: views of one informer that have
// the same see the very same, even if their resourceVersions differ because of a
// bookmark. It is for those who keep what they have made of a view.
func (v *View[T]) Generation() uint64 { return v.pinned.generation() }

// Len is the number of objects.
func (v *View[T]) Len() int { return v.pinned.Len() }

// Get implements [Lister].
func (v *View[T]) Get(namespace, name string) (T, bool) {
	return v.pinned.get(object.Key(namespace, name))
}

// List implements [Lister].
func (v *View[T]) List(q Query) []T { return v.Append(nil, q) }

// Append appends to dst what [View.List] returns, like [Informer.Append].
func (v *View[T]) Append(dst []T, q Query) []T { return v.pinned.collect(dst, q) }

// All implements [Lister].
func (v *View[T]) All(q Query) iter.Seq[T] {
	return v.pinned.search(q)
}

// IndexFor sees to the label indexes that q is best answered by, for the next
// [Informer.View] to be searched by: views make none themselves. found says that q
// has found something in this one.
func (inf *Informer[T]) IndexFor(q Query, found bool) { inf.indexLabels(q, found) }
