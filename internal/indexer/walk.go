package indexer

import (
	"iter"

	"github.com/tidings-io/tidings/internal/object"
)

// walk yields the objects of slots as a View sees them. A slot, its newest version
// and the object are in three places of a memory much larger than the CPU's
// caches. So walk collects slots, reads one place of all of them, then the next:
// cache misses that do not depend on one another overlap. One slot after the other
// takes three times as long.
//
// A walk does not escape to the heap, so it costs the garbage collector nothing.
type walk[T object.Object] struct {
	epoch    uint64
	yield    func(string, T) bool // if nil, objects are appended to dst
	dst      []T
	slots    [window]*slot[T]
	versions [window]*version[T]
	objects  [window]T
	n        int // slots collected
	flushAt  int // how many to collect: few at first, for short reads
	stopped  bool
}

const window = 32

// end flushes what is left and returns dst.
func (w *walk[T]) end() (dst []T) {
	w.flush()
	return w.dst
}

// add adds a slot and reports whether to go on.
func (w *walk[T]) add(s *slot[T]) bool {
	w.slots[w.n] = s
	if w.n++; w.n < w.flushAt {
		return true
	}
	w.flushAt = min(2*w.flushAt, window)
	return w.flush()
}

// flush yields the objects of the collected slots and reports whether to go on.
func (w *walk[T]) flush() bool {
	if w.stopped {
		return false
	}
	slots, versions, objects := w.slots[:w.n], w.versions[:w.n], w.objects[:w.n]
	w.n = 0
	for i, s := range slots {
		versions[i] = s.newest.Load()
	}
	n := 0
	for i, s := range slots {
		version := versions[i]
		stamp := version.stamp
		if stamp/2 > w.epoch {
			if version = s.at(w.epoch); version == nil {
				continue
			}
			stamp = version.stamp
		}
		if stamp&tombstone == 0 {
			slots[n], objects[n] = s, version.object
			n++
		}
	}
	if w.yield == nil {
		w.dst = append(w.dst, objects[:n]...)
		return true
	}
	for i, s := range slots[:n] {
		if !w.yield(s.key, objects[i]) {
			w.stopped = true
			return false
		}
	}
	return true
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
	return func(yield func(string, T) bool) { v.from(prefix, after, yield, nil) }
}

// Append appends to dst what From yields. It is faster than From.
func (v *View[T]) Append(dst []T, prefix, after string) []T { return v.from(prefix, after, nil, dst) }

func (v *View[T]) from(prefix, after string, yield func(string, T) bool, dst []T) []T {
	end := prefixEnd(prefix)
	if end != "" && after >= end {
		return dst
	}
	w := &walk[T]{epoch: v.epoch, yield: yield, dst: dst, flushAt: 4}
	pivot := v.ix.pivot()
	defer v.ix.pivots.Put(pivot)
	// Find the slot to stop at first, so that the walk need not compare keys.
	var stop *slot[T]
	if end != "" {
		v.order.Ascend(pivot.begin(end), func(s *slot[T]) bool {
			stop = s
			return false
		})
	}
	visit := func(s *slot[T]) bool { return s != stop && w.add(s) }
	if begin := max(prefix, successor(after)); begin == "" {
		v.order.Scan(visit)
	} else {
		v.order.Ascend(pivot.begin(begin), visit)
	}
	return w.end()
}

// Indexed yields the objects that an index has under value, in the order of their
// keys: those whose keys begin with prefix and are greater than after. It yields
// nothing if the view does not have the index.
func (v *View[T]) Indexed(name, value, prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { v.indexed(name, value, prefix, after, yield, nil) }
}

// AppendIndexed appends to dst what Indexed yields. It is faster than Indexed.
func (v *View[T]) AppendIndexed(dst []T, name, value, prefix, after string) []T {
	return v.indexed(name, value, prefix, after, nil, dst)
}

func (v *View[T]) indexed(name, value, prefix, after string, yield func(string, T) bool, dst []T) []T {
	tree, end := v.index(name), prefixEnd(prefix)
	if tree == nil || end != "" && after >= end {
		return dst
	}
	w := &walk[T]{epoch: v.epoch, yield: yield, dst: dst, flushAt: 4}
	pivot := v.ix.pivot()
	defer v.ix.pivots.Put(pivot)
	var stop *slot[T]
	if end != "" {
		tree.Ascend(entry[T]{value, pivot.begin(end)}, func(e entry[T]) bool {
			if e.value == value {
				stop = e.slot
			}
			return false
		})
	}
	first := true
	tree.Ascend(entry[T]{value, pivot.begin(max(prefix, successor(after)))}, func(e entry[T]) bool {
		if e.value != value || e.slot == stop {
			return false
		}
		if first {
			first, value = false, e.value // the string that all entries share: it compares by pointer
		}
		return w.add(e.slot)
	})
	return w.end()
}

// pivot returns a slot to begin a walk at. Slots are pooled, so that a short read
// does not allocate.
func (ix *Indexer[T]) pivot() *slot[T] {
	if s, ok := ix.pivots.Get().(*slot[T]); ok {
		return s
	}
	return new(slot[T])
}

// begin sets the key of a pivot and returns it.
func (s *slot[T]) begin(key string) *slot[T] {
	s.key = key
	return s
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
