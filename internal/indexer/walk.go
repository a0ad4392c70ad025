package indexer

import (
	"iter"

	"github.com/tidings-io/tidings/internal/object"
)

// walk yields the objects of slots as they are in a View. A slot, its newest
// version and the object are in three places of a memory that is much larger than
// the processor's caches, so it gathers slots and looks at one place of all of
// them, then at the next: waits for memory that do not depend on one another
// happen at the same time. One after the other takes three times as long.
//
// It stays on the stack of who walks, which the garbage collector does not have to
// be told of.
type walk[T object.Object] struct {
	epoch    uint64
	each     func(string, T) bool // is told of them; if nil,
	into     []T                  // they are appended to this
	slots    [window]*slot[T]
	versions [window]*version[T]
	objects  [window]T
	n        int // of slots that are gathered
	most     int // to gather before looking: few at first, for readers of few
	over     bool
}

const window = 32

// end takes what is gathered yet, and returns all that was appended.
func (w *walk[T]) end() (appended []T) {
	w.flush()
	return w.into
}

// add takes a slot and reports whether to go on.
func (w *walk[T]) add(s *slot[T]) bool {
	w.slots[w.n] = s
	if w.n++; w.n < w.most {
		return true
	}
	w.most = min(2*w.most, window)
	return w.flush()
}

// flush tells of what is gathered, unless the reader has had enough.
func (w *walk[T]) flush() bool {
	if w.over {
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
		from := version.from
		if from/2 > w.epoch {
			if version = s.at(w.epoch); version == nil {
				continue
			}
			from = version.from
		}
		if from&gone == 0 {
			slots[n], objects[n] = s, version.object
			n++
		}
	}
	if w.each == nil {
		w.into = append(w.into, objects[:n]...)
		return true
	}
	for i, s := range slots[:n] {
		if !w.each(s.key, objects[i]) {
			w.over = true
			return false
		}
	}
	return true
}

// All yields every object in the order of its key, which is etcd's.
func (v *View[T]) All() iter.Seq2[string, T] { return v.From("", "") }

// Namespace yields the objects of one namespace in the order of their names.
// The empty namespace means all of them.
func (v *View[T]) Namespace(namespace string) iter.Seq2[string, T] {
	if namespace == "" {
		return v.All()
	}
	return v.From(namespace+"/", "")
}

// From yields the objects whose keys begin with prefix, starting behind the
// key given as after: the next page of a list.
func (v *View[T]) From(prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { v.from(prefix, after, yield, nil) }
}

// Append appends to dst what From yields, in less time.
func (v *View[T]) Append(dst []T, prefix, after string) []T { return v.from(prefix, after, nil, dst) }

func (v *View[T]) from(prefix, after string, each func(string, T) bool, into []T) []T {
	end := behind(prefix)
	if end != "" && after >= end {
		return into
	}
	w := &walk[T]{epoch: v.epoch, each: each, into: into, most: 4}
	pivot := v.ix.pivot()
	defer v.ix.pivots.Put(pivot)
	// Where to stop is looked for once, so that keys need not be looked at.
	var stop *slot[T]
	if end != "" {
		v.order.Ascend(pivot.begin(end), func(s *slot[T]) bool {
			stop = s
			return false
		})
	}
	visit := func(s *slot[T]) bool { return s != stop && w.add(s) }
	if begin := max(prefix, past(after)); begin == "" {
		v.order.Scan(visit)
	} else {
		v.order.Ascend(pivot.begin(begin), visit)
	}
	return w.end()
}

// Indexed yields the objects that an index has under value and whose keys begin
// with prefix, in the order of their keys, starting behind the key given as
// after. An index that the view does not have yields nothing.
func (v *View[T]) Indexed(name, value, prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) { v.indexed(name, value, prefix, after, yield, nil) }
}

// AppendIndexed appends to dst what Indexed yields, in less time.
func (v *View[T]) AppendIndexed(dst []T, name, value, prefix, after string) []T {
	return v.indexed(name, value, prefix, after, nil, dst)
}

func (v *View[T]) indexed(name, value, prefix, after string, each func(string, T) bool, into []T) []T {
	tree, end := v.index(name), behind(prefix)
	if tree == nil || end != "" && after >= end {
		return into
	}
	w := &walk[T]{epoch: v.epoch, each: each, into: into, most: 4}
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
	tree.Ascend(entry[T]{value, pivot.begin(max(prefix, past(after)))}, func(e entry[T]) bool {
		if e.value != value || e.slot == stop {
			return false
		}
		if first {
			first, value = false, e.value // the very string of the others, which is compared in no time
		}
		return w.add(e.slot)
	})
	return w.end()
}

// pivot returns a slot to begin a walk at, which is one that has been used before:
// so to look at a few objects leaves no garbage.
func (ix *Indexer[T]) pivot() *slot[T] {
	if s, ok := ix.pivots.Get().(*slot[T]); ok {
		return s
	}
	return new(slot[T])
}

// begin makes a pivot begin at a key.
func (s *slot[T]) begin(key string) *slot[T] {
	s.key = key
	return s
}

// past is the first key behind another one; none is behind the empty one.
func past(key string) string {
	if key == "" {
		return ""
	}
	return key + "\x00"
}

// behind is the first string behind all those that begin with prefix, or empty
// if there is no such string.
func behind(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}
