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
type walk[T object.Object] struct {
	epoch uint64
	yield func(string, T) bool
	slots [window]*slot[T]
	n     int // of slots that are gathered
	most  int // to gather before looking: few at first, for readers of few
	over  bool
}

const window = 32

// add takes a slot and reports whether to go on.
func (w *walk[T]) add(s *slot[T]) bool {
	w.slots[w.n] = s
	if w.n++; w.n < w.most {
		return true
	}
	w.most = min(2*w.most, window)
	return w.flush()
}

// flush yields what is gathered, unless the reader has had enough.
func (w *walk[T]) flush() bool {
	if w.over {
		return false
	}
	var versions [window]*version[T]
	var epochs [window]uint64
	slots := w.slots[:w.n]
	w.n = 0
	for i, s := range slots {
		versions[i] = s.newest.Load()
	}
	for i := range slots {
		epochs[i] = versions[i].epoch()
	}
	for i, s := range slots {
		version := versions[i]
		if epochs[i] > w.epoch {
			version = s.at(w.epoch)
		}
		if version != nil && !version.deleted() && !w.yield(s.key, version.object) {
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
	return func(yield func(string, T) bool) {
		// Where to stop is looked for once, so that keys need not be looked at.
		var stop *slot[T]
		if end := behind(prefix); end != "" {
			if after >= end {
				return
			}
			v.order.Ascend(&slot[T]{key: end}, func(s *slot[T]) bool {
				stop = s
				return false
			})
		}
		w := &walk[T]{epoch: v.epoch, yield: yield, most: 4}
		visit := func(s *slot[T]) bool { return s != stop && w.add(s) }
		pivot := max(prefix, after)
		if pivot == "" {
			v.order.Scan(visit)
			w.flush()
			return
		}
		first := after != ""
		v.order.Ascend(&slot[T]{key: pivot}, func(s *slot[T]) bool {
			if first {
				first = false
				if s.key == after {
					return true
				}
			}
			return visit(s)
		})
		w.flush()
	}
}

// Indexed yields the objects that an index has under value and whose keys begin
// with prefix, in the order of their keys, starting behind the key given as
// after. An index that the view does not have yields nothing.
func (v *View[T]) Indexed(name, value, prefix, after string) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		tree := v.index(name)
		if tree == nil {
			return
		}
		var stop *slot[T]
		if end := behind(prefix); end != "" {
			if after >= end {
				return
			}
			tree.Ascend(entry[T]{value, &slot[T]{key: end}}, func(e entry[T]) bool {
				if e.value == value {
					stop = e.slot
				}
				return false
			})
		}
		w := &walk[T]{epoch: v.epoch, yield: yield, most: 4}
		first := true
		tree.Ascend(entry[T]{value, &slot[T]{key: max(prefix, after)}}, func(e entry[T]) bool {
			if e.value != value || e.slot == stop {
				return false
			}
			if first {
				first = false
				value = e.value // the very string of the others, which is compared in no time
				if after != "" && e.slot.key == after {
					return true
				}
			}
			return w.add(e.slot)
		})
		w.flush()
	}
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
