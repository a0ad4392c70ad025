package indexer

import (
	"iter"

	"github.com/tidings-io/tidings/internal/object"
)

// walk visits the objects of slots as a View sees them. A slot, its newest version
// and the object are in three places of a memory much larger than the CPU's
// caches. So walk collects slots, reads one place of all of them, then the next:
// cache misses that do not depend on one another overlap. One slot after the other
// takes three times as long.
//
// Walks are pooled, so that a read does not allocate.
type walk[T object.Object] struct {
	epoch    uint64
	pivot    slot[T] // where the walk begins
	slots    [window]*slot[T]
	versions [window]*version[T]
	n        int // slots collected
	flushAt  int // how many to collect: few at first, for short reads
	used     int // the largest n so far
	stopped  bool
}

const window = 32

// visitor is called with slots of a View and the versions it sees there, in order. It
// returns whether to go on. The slices are only valid during the call.
type visitor[T object.Object] func([]*slot[T], []*version[T]) bool

// Window is a few consecutive objects of a View.
type Window[T object.Object] struct{ versions []*version[T] }

// Len is the number of objects.
func (w Window[T]) Len() int { return len(w.versions) }

// At returns an object.
func (w Window[T]) At(i int) T { return w.versions[i].object }

// walk returns a walk, which must be ended.
func (v *View[T]) walk() *walk[T] {
	w, ok := v.ix.walks.Get().(*walk[T])
	if !ok {
		w = new(walk[T])
	}
	w.epoch, w.flushAt = v.epoch, 4
	return w
}

// end returns a walk to its pool. It keeps no object alive.
func (v *View[T]) end(w *walk[T]) {
	clear(w.slots[:w.used])
	clear(w.versions[:w.used])
	w.pivot.key, w.n, w.used, w.stopped = "", 0, 0, false
	v.ix.walks.Put(w)
}

// begin sets the key to begin at and returns the pivot.
func (w *walk[T]) begin(key string) *slot[T] {
	w.pivot.key = key
	return &w.pivot
}

// add adds a slot and reports whether to go on.
func (w *walk[T]) add(s *slot[T], visit visitor[T]) bool {
	w.slots[w.n] = s
	if w.n++; w.n < w.flushAt {
		return true
	}
	w.flushAt = min(2*w.flushAt, window)
	return w.flush(visit)
}

// flush visits the objects of the collected slots and reports whether to go on.
func (w *walk[T]) flush(visit visitor[T]) bool {
	if w.stopped || w.n == 0 {
		return false
	}
	slots, versions := w.slots[:w.n], w.versions[:w.n]
	w.used, w.n = max(w.used, w.n), 0
	for i, s := range slots {
		versions[i] = s.newest.Load()
	}
	n := 0
	for i, s := range slots {
		version := versions[i]
		if version.epoch() > w.epoch {
			if version = s.at(w.epoch); version == nil {
				continue
			}
		}
		if !version.deleted() {
			slots[n], versions[n] = s, version
			n++
		}
	}
	w.stopped = !visit(slots[:n], versions[:n])
	return !w.stopped
}

// All yields every object in the order of the keys, which is etcd's.
func (v *View[T]) All() iter.Seq2[string, T] { return v.From("", "") }

// Namespace yields the objects of one namespace in the order of their names.
// The empty namespace means all of them.
func (v *View[T]) Namespace(namespace string) iter.Seq2[string, T] {
	if namespace == "" {
		return v.All()
	}
	return v.From(namespace+"/", "")
}

// From yields the objects whose keys begin with prefix and are greater than
// after, such as the next page of a list.
func (v *View[T]) From(prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { v.from(prefix, after, each(yield)) }
}

// Windows yields what From yields, several objects at a time. It is faster than
// From. A window is only valid until the next one.
func (v *View[T]) Windows(prefix, after string) iter.Seq[Window[T]] {
	return func(yield func(Window[T]) bool) {
		v.from(prefix, after, func(_ []*slot[T], versions []*version[T]) bool { return yield(Window[T]{versions}) })
	}
}

// each visits one object at a time.
func each[T object.Object](yield func(string, T) bool) visitor[T] {
	return func(slots []*slot[T], versions []*version[T]) bool {
		for i, s := range slots {
			if !yield(s.key, versions[i].object) {
				return false
			}
		}
		return true
	}
}

func (v *View[T]) from(prefix, after string, visit visitor[T]) {
	end := prefixEnd(prefix)
	if end != "" && after >= end {
		return
	}
	w := v.walk()
	defer v.end(w)
	// Find the slot to stop at first, so that the walk need not compare keys.
	var stop *slot[T]
	if end != "" {
		v.order.Ascend(w.begin(end), func(s *slot[T]) bool {
			stop = s
			return false
		})
	}
	add := func(s *slot[T]) bool { return s != stop && w.add(s, visit) }
	if begin := max(prefix, successor(after)); begin == "" {
		v.order.Scan(add)
	} else {
		v.order.Ascend(w.begin(begin), add)
	}
	w.flush(visit)
}

// Indexed yields the objects that an index has under value, in the order of their
// keys: those whose keys begin with prefix and are greater than after. It yields
// nothing if the view does not have the index.
func (v *View[T]) Indexed(name, value, prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { v.indexed(name, value, prefix, after, each(yield)) }
}

// IndexedWindows yields what Indexed yields, as Windows does.
func (v *View[T]) IndexedWindows(name, value, prefix, after string) iter.Seq[Window[T]] {
	return func(yield func(Window[T]) bool) {
		v.indexed(name, value, prefix, after, func(_ []*slot[T], versions []*version[T]) bool { return yield(Window[T]{versions}) })
	}
}

func (v *View[T]) indexed(name, value, prefix, after string, visit visitor[T]) {
	tree, end := v.index(name), prefixEnd(prefix)
	if tree == nil || end != "" && after >= end {
		return
	}
	w := v.walk()
	defer v.end(w)
	var stop *slot[T]
	if end != "" {
		tree.Ascend(entry[T]{value, w.begin(end)}, func(e entry[T]) bool {
			if e.value == value {
				stop = e.slot
			}
			return false
		})
	}
	first := true
	tree.Ascend(entry[T]{value, w.begin(max(prefix, successor(after)))}, func(e entry[T]) bool {
		if e.value != value || e.slot == stop {
			return false
		}
		if first {
			first, value = false, e.value // the string that all entries share: it compares by pointer
		}
		return w.add(e.slot, visit)
	})
	w.flush(visit)
}

// successor returns the least key greater than key, or "" for "".
func successor(key string) string {
	if key == "" {
		return ""
	}
	return key + "\x00"
}

// prefixEnd returns the least string greater than all strings that begin with
// prefix, or "" if there is none.
func prefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}
