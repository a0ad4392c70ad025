package indexer

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// IndexFunc appends to values those under which o is to be found. It must be
// pure and must not keep the slice.
type IndexFunc[T any] func(values []string, o T) []string

// entry is an object in an index. Entries are ordered by value, then by key. All
// entries of one value have the same string, so that walking along them does not
// touch one object's memory after the other, and no object's memory is kept by
// them: it may be that of a version which is long gone.
type entry[T object.Object] struct {
	value string
	slot  *slot[T]
}

// index finds objects by values. The tree is the writer's; views have copies.
type index[T object.Object] struct {
	name     string
	values   IndexFunc[T]
	tree     *btree.BTreeG[entry[T]]
	reshaped bool
}

// add enters a slot under a value. before is one whose key is in front of all others.
func (in *index[T]) add(value string, s, before *slot[T]) {
	known := false
	in.tree.Ascend(entry[T]{value, before}, func(e entry[T]) bool {
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

// AddIndex adds an index over everything in the store and everything to come.
// Objects are indexed before it returns; views pinned earlier do not have it.
// It waits for a batch that is being applied, and the next one waits for it.
// A name that is taken is an error.
func (ix *Indexer[T]) AddIndex(name string, values IndexFunc[T]) error {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if slices.ContainsFunc(ix.indexes, func(have *index[T]) bool { return have.name == name }) {
		return fmt.Errorf("there is an index %q already", name)
	}
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
	added := &index[T]{name: name, values: values, reshaped: true, tree: btree.NewBTreeGOptions(func(a, b entry[T]) bool {
		if a.value != b.value {
			return a.value < b.value
		}
		return a.slot.key < b.slot.key
	}, btree.Options{NoLocks: true})}
	ix.order.Scan(func(s *slot[T]) bool {
		ix.was = unique(values(ix.was[:0], s.newest.Load().object))
		for _, value := range ix.was {
			added.add(value, s, &ix.before)
		}
		return true
	})
	ix.indexes = append(ix.indexes, added)
	ix.republish(ix.copyIndexes())
	return nil
}

// DropIndex takes an index away, if there is one of that name. Views pinned earlier
// still have it.
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

// republish publishes the same state once more, with other indexes.
func (ix *Indexer[T]) republish(indexes []indexCopy[T]) {
	previous := ix.current.Load()
	next := &View[T]{
		ResourceVersion: previous.ResourceVersion, Synced: previous.Synced, Generation: previous.Generation,
		epoch: previous.epoch, order: previous.order, ix: ix,
		indexes: indexes, hold: &hold{epoch: previous.epoch},
	}
	ix.current.Store(&Moment[T]{next, previous.tail})
	ix.supersede(previous.hold)
}

// reindex moves the entries of a slot from those of the old object to those of
// the new one; either may be missing.
func (ix *Indexer[T]) reindex(s *slot[T], old, o T, had, has bool) {
	for _, in := range ix.indexes {
		ix.was, ix.is = ix.was[:0], ix.is[:0]
		if had {
			ix.was = unique(in.values(ix.was, old))
		}
		if has {
			ix.is = unique(in.values(ix.is, o))
		}
		if slices.Equal(ix.was, ix.is) {
			continue // by far the most frequent
		}
		in.reshaped = true
		for _, value := range ix.was {
			if !slices.Contains(ix.is, value) {
				in.tree.Delete(entry[T]{value, s})
			}
		}
		for _, value := range ix.is {
			if !slices.Contains(ix.was, value) {
				in.add(value, s, &ix.before)
			}
		}
	}
}

// unique sorts values and drops those that come twice.
func unique(values []string) []string {
	if len(values) < 2 {
		return values
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// copyIndexes returns the present state of the indexes for a View.
func (ix *Indexer[T]) copyIndexes() []indexCopy[T] {
	previous := ix.current.Load().indexes
	if len(previous) == len(ix.indexes) && !slices.ContainsFunc(ix.indexes, func(in *index[T]) bool { return in.reshaped }) {
		return previous
	}
	copies := make([]indexCopy[T], len(ix.indexes))
	for i, in := range ix.indexes {
		if !in.reshaped {
			copies[i] = previous[i]
			continue
		}
		copies[i], in.reshaped = indexCopy[T]{in.name, in.tree.Copy()}, false
	}
	return copies
}

// index returns the tree of an index.
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

// IndexNamed returns the name of the index that is called prefix and rest, which
// leaves no garbage.
func (v *View[T]) IndexNamed(prefix, rest string) (name string, found bool) {
	for _, in := range v.indexes {
		if after, ok := strings.CutPrefix(in.name, prefix); ok && after == rest {
			return in.name, true
		}
	}
	return "", false
}

// IndexedCount counts the objects that an index has under value, up to limit.
func (v *View[T]) IndexedCount(name, value string, limit int) int {
	n := 0
	if tree := v.index(name); tree != nil {
		tree.Ascend(entry[T]{value, &v.ix.before}, func(e entry[T]) bool {
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
		// From each value on to the first entry of the next: as many steps as
		// there are values, not objects.
		next, ok := tree.Min()
		for ok {
			value := next.value
			if !yield(value) {
				return
			}
			ok = false
			tree.Ascend(entry[T]{value + "\x00", &v.ix.before}, func(e entry[T]) bool {
				next, ok = e, true
				return false
			})
		}
	}
}
