package indexer

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// IndexFunc appends the index values of o to values. It must be pure and must not
// keep the slice.
type IndexFunc[T any] func(values []string, o T) []string

// entry is an object in an index. Entries are ordered by value, then by key. All
// entries of one value share one string. So a walk along them does not touch the
// memory of each object, and no entry keeps the memory of an object alive, which
// may be that of a version long superseded.
type entry[T object.Object] struct {
	value string
	slot  *slot[T]
}

// index finds objects by index value. The tree is the writer's; views have copies.
type index[T object.Object] struct {
	name    string
	values  IndexFunc[T]
	tree    *btree.BTreeG[entry[T]]
	changed bool // since the last copy
	// failed are the slots that have no entries because values panicked.
	failed map[*slot[T]]struct{}
}

// add adds a slot under a value. The key of least sorts before all others.
func (in *index[T]) add(value string, s, least *slot[T]) {
	known := false
	in.tree.Ascend(entry[T]{value, least}, func(e entry[T]) bool {
		if e.value == value {
			value, known = e.value, true
		}
		return false
	})
	if !known {
		value = strings.Clone(value)
	}
	in.tree.Set(entry[T]{value, s})
}

// indexCopy is the state of an index in a View.
type indexCopy[T object.Object] struct {
	name string
	tree *btree.BTreeG[entry[T]]
}

// ErrIndexExists is returned by [Indexer.AddIndex] if the name is taken.
var ErrIndexExists = errors.New("there is an index of that name already")

// AddIndex adds an index over all present and future objects. Present objects are
// indexed before it returns; views pinned earlier do not have the index. AddIndex
// waits for a batch that is being applied, and the next batch waits for it. It
// returns [ErrIndexExists] if the name is taken.
func (ix *Indexer[T]) AddIndex(name string, values IndexFunc[T]) error {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if slices.ContainsFunc(ix.indexes, func(have *index[T]) bool { return have.name == name }) {
		return ErrIndexExists
	}
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
	added := &index[T]{name: name, values: values, changed: true, tree: btree.NewBTreeGOptions(func(a, b entry[T]) bool {
		if a.value != b.value {
			return a.value < b.value
		}
		return a.slot.key < b.slot.key
	}, btree.Options{NoLocks: true})}
	ix.order.Scan(func(s *slot[T]) bool {
		ix.newValues = ix.valuesOf(added, s, ix.newValues[:0], s.newest.Load().object)
		for _, value := range ix.newValues {
			added.add(value, s, &ix.least)
		}
		return true
	})
	ix.indexes = append(ix.indexes, added)
	ix.republish(ix.copyIndexes())
	return nil
}

// DropIndex removes the index with the given name, if there is one. Views pinned
// earlier still have it.
func (ix *Indexer[T]) DropIndex(name string) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	at := slices.IndexFunc(ix.indexes, func(have *index[T]) bool { return have.name == name })
	if at < 0 {
		return
	}
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
	ix.indexes = slices.Delete(ix.indexes, at, at+1)
	ix.republish(slices.Delete(slices.Clone(ix.current.Load().indexes), at, at+1))
}

// republish publishes the same state again, with other indexes.
func (ix *Indexer[T]) republish(indexes []indexCopy[T]) {
	previous := ix.current.Load()
	next := &View[T]{
		ResourceVersion: previous.ResourceVersion, Synced: previous.Synced, Generation: previous.Generation,
		epoch: previous.epoch, order: previous.order, ix: ix,
		indexes: indexes, owners: previous.owners, pins: &pins{epoch: previous.epoch},
	}
	ix.current.Store(&Cursor[T]{next, previous.tail})
	ix.retire(previous.pins)
}

// reindex replaces the index entries of the old object by those of the new one.
// had and has say whether there is an old and a new object.
func (ix *Indexer[T]) reindex(s *slot[T], old, o T, had, has bool) {
	ix.owners.reindex(s, old, o, had, has)
	for _, in := range ix.indexes {
		ix.oldValues, ix.newValues = ix.oldValues[:0], ix.newValues[:0]
		if had {
			ix.oldValues = ix.heldValues(in, s, ix.oldValues, old)
		}
		if has {
			ix.newValues = ix.valuesOf(in, s, ix.newValues, o)
		}
		if slices.Equal(ix.oldValues, ix.newValues) {
			continue // by far the most frequent case
		}
		in.changed = true
		for _, value := range ix.oldValues {
			if !slices.Contains(ix.newValues, value) {
				in.tree.Delete(entry[T]{value, s})
			}
		}
		for _, value := range ix.newValues {
			if !slices.Contains(ix.oldValues, value) {
				in.add(value, s, &ix.least)
			}
		}
	}
}

// valuesOf returns the values of the object that s is about to hold. There are none
// if the index function panics and Options.Panicked is set.
func (ix *Indexer[T]) valuesOf(in *index[T], s *slot[T], dst []string, o T) []string {
	values, ok := ix.call(in, s, dst, o)
	if !ok {
		if in.failed == nil {
			in.failed = map[*slot[T]]struct{}{}
		}
		in.failed[s] = struct{}{}
	}
	return values
}

// heldValues returns the values under which the index has a slot, for the object that
// s no longer holds.
func (ix *Indexer[T]) heldValues(in *index[T], s *slot[T], dst []string, old T) []string {
	if _, failed := in.failed[s]; failed {
		delete(in.failed, s)
		return dst
	}
	values, ok := ix.call(in, s, dst, old)
	if ok {
		return values
	}
	// The function returned values for the same object before, so it is not pure. An
	// entry that stays would show the object under a value that it does not have.
	in.tree.Scan(func(e entry[T]) bool {
		if e.slot == s {
			values = append(values, e.value)
		}
		return true
	})
	return values
}

// call calls an index function. ok is false if it panicked.
func (ix *Indexer[T]) call(in *index[T], s *slot[T], dst []string, o T) (values []string, ok bool) {
	if ix.panicked != nil {
		defer func() {
			if !ok {
				if p := recover(); p != nil {
					ix.panicked(in.name, s.key, p)
					values = dst
				}
			}
		}()
	}
	return unique(in.values(dst, o)), true
}

// unique sorts values and removes duplicates.
func unique(values []string) []string {
	if len(values) < 2 {
		return values
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// copyIndexes returns the present state of all indexes, for a View.
func (ix *Indexer[T]) copyIndexes() []indexCopy[T] {
	previous := ix.current.Load().indexes
	if len(previous) == len(ix.indexes) && !slices.ContainsFunc(ix.indexes, func(in *index[T]) bool { return in.changed }) {
		return previous
	}
	copies := make([]indexCopy[T], len(ix.indexes))
	for i, in := range ix.indexes {
		if !in.changed {
			copies[i] = previous[i]
			continue
		}
		copies[i], in.changed = indexCopy[T]{in.name, in.tree.Copy()}, false
	}
	return copies
}

// index returns the tree of an index, or nil.
func (v *View[T]) index(name string) *btree.BTreeG[entry[T]] {
	for _, in := range v.indexes {
		if in.name == name {
			return in.tree
		}
	}
	return nil
}

// HasIndex reports whether the view has an index with the given name.
func (v *View[T]) HasIndex(name string) bool { return v.index(name) != nil }

// IndexNamed looks up the index named prefix+rest and returns its name. It does
// not allocate.
func (v *View[T]) IndexNamed(prefix, rest string) (name string, found bool) {
	for _, in := range v.indexes {
		if after, ok := strings.CutPrefix(in.name, prefix); ok && after == rest {
			return in.name, true
		}
	}
	return "", false
}

// IndexedCount returns the number of objects that an index has under value, but
// at most limit.
func (v *View[T]) IndexedCount(name, value string, limit int) int {
	n := 0
	if tree := v.index(name); tree != nil {
		tree.Ascend(entry[T]{value, &v.ix.least}, func(e entry[T]) bool {
			if e.value != value {
				return false
			}
			n++
			return n < limit
		})
	}
	return n
}

// IndexValues yields the values that an index has objects under, in order.
func (v *View[T]) IndexValues(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		tree := v.index(name)
		if tree == nil {
			return
		}
		// From each value, go to the first entry of the next: one step per value,
		// not one per object.
		next, ok := tree.Min()
		for ok {
			value := next.value
			if !yield(value) {
				return
			}
			ok = false
			tree.Ascend(entry[T]{value + "\x00", &v.ix.least}, func(e entry[T]) bool {
				next, ok = e, true
				return false
			})
		}
	}
}
