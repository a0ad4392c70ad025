package indexer

import (
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/object"
)

// owned is an object in the index of owners, under the hash of one owner's uid. Entries
// are ordered by hash, then by key. A hash takes less memory than a value of an [index]
// does, and the entry keeps no version of the object alive.
type owned[T object.Object] struct {
	owner uint64
	slot  *slot[T]
}

// owners finds objects by the hashes of their owners' uids. The tree is the writer's;
// views have copies.
type owners[T object.Object] struct {
	of       func(dst []uint64, o T) []uint64 // nil: there is no index of owners
	tree     *btree.BTreeG[owned[T]]
	changed  bool // since the last copy
	old, new []uint64

	// waiting are changes of objects whose owners are still to be compared. The hashes of
	// an old object have left the CPU's caches. Reading those of several objects, one after
	// the other, lets the cache misses overlap.
	waiting []ownersChange[T]
}

// ownersChange is a change of an object.
type ownersChange[T object.Object] struct {
	slot           *slot[T]
	old, new       T
	oldEnd, newEnd int // where its hashes end, in those of all
}

func newOwners[T object.Object](of func(dst []uint64, o T) []uint64) owners[T] {
	if of == nil {
		return owners[T]{}
	}
	return owners[T]{of: of, waiting: make([]ownersChange[T], 0, len(metaWindow{})), tree: btree.NewBTreeGOptions(func(a, b owned[T]) bool {
		if a.owner != b.owner {
			return a.owner < b.owner
		}
		return a.slot.key < b.slot.key
	}, btree.Options{NoLocks: true})}
}

// reindex replaces the entries of the old object by those of the new one, at the latest
// when the index is copied. had and has say whether there is an old and a new object.
func (in *owners[T]) reindex(s *slot[T], old, o T, had, has bool) {
	if in.of == nil {
		return
	}
	if had && has {
		if in.waiting = append(in.waiting, ownersChange[T]{slot: s, old: old, new: o}); len(in.waiting) == cap(in.waiting) {
			in.settle()
		}
		return
	}
	in.old, in.new = in.old[:0], in.new[:0]
	if had {
		in.settle() // changes of the object come first
		in.old = in.of(in.old[:0], old)
	}
	if has {
		in.new = in.of(in.new[:0], o)
	}
	in.move(s, in.old, in.new)
}

// settle brings the index up to date with the changes that wait.
func (in *owners[T]) settle() {
	in.old, in.new = in.old[:0], in.new[:0]
	for i := range in.waiting {
		in.old = in.of(in.old, in.waiting[i].old)
		in.waiting[i].oldEnd = len(in.old)
	}
	for i := range in.waiting {
		in.new = in.of(in.new, in.waiting[i].new)
		in.waiting[i].newEnd = len(in.new)
	}
	old, new := 0, 0
	for _, w := range in.waiting {
		in.move(w.slot, in.old[old:w.oldEnd], in.new[new:w.newEnd])
		old, new = w.oldEnd, w.newEnd
	}
	clear(in.waiting) // they keep no object alive
	in.waiting = in.waiting[:0]
}

// move replaces the entries of a slot.
func (in *owners[T]) move(s *slot[T], old, new []uint64) {
	if slices.Equal(old, new) {
		return // by far the most frequent case
	}
	in.changed = true
	for _, owner := range old {
		if !slices.Contains(new, owner) {
			in.tree.Delete(owned[T]{owner, s})
		}
	}
	for _, owner := range new {
		if !slices.Contains(old, owner) {
			in.tree.Set(owned[T]{owner, s})
		}
	}
}

// empty removes all entries.
func (in *owners[T]) empty() {
	if in.of != nil {
		clear(in.waiting)
		in.waiting = in.waiting[:0]
		in.tree.Clear()
		in.changed = true
	}
}

// copyOwners returns the present state of the index of owners, for a View.
func (ix *Indexer[T]) copyOwners() *btree.BTreeG[owned[T]] {
	in := &ix.owners
	if in.settle(); in.of == nil || !in.changed {
		return ix.current.Load().owners
	}
	in.changed = false
	return in.tree.Copy()
}

// HasOwners reports whether the store has an index of owners.
func (v *View[T]) HasOwners() bool { return v.owners != nil }

// Owned yields the objects that the index of owners has under a hash, in the order of
// their keys: those whose keys begin with prefix and are greater than after. Hashes of
// different uids may be equal.
func (v *View[T]) Owned(owner uint64, prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		if v.owners == nil {
			return
		}
		w := v.walk()
		defer v.end(w)
		visit := each(yield)
		v.owners.Ascend(owned[T]{owner, w.begin(max(prefix, successor(after)))}, func(e owned[T]) bool {
			return e.owner == owner && strings.HasPrefix(e.slot.key, prefix) && w.add(e.slot, visit)
		})
		w.flush(visit)
	}
}
