package reflector

import (
	"strings"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// stage holds the initial events of a WatchList stream until their end is
// known: a server may send changes among them.
type stage[T object.Object] struct {
	items []T
	// place finds an object: namespace and name → index of items. There is none
	// as long as objects come in the order of their keys, as etcd has them and
	// API servers send them: what comes after the last is new.
	place  map[[2]string]int
	newest uint64 // version of all that came, if there is a place
	holes  int
}

// newStage has room for as many objects as the last list had.
func newStage[T object.Object](objects int) *stage[T] { return &stage[T]{items: make([]T, 0, objects)} }

// apply takes in an event and reports whether it is a sign that the initial events
// still go on: an object not seen before that is the next in order, or older than
// one that came before it. What happens meanwhile is newer than everything.
func (s *stage[T]) apply(e source.Event[T]) bool {
	if e.Type == source.Bookmark {
		return false
	}
	if s.place == nil {
		if last := len(s.items) - 1; last < 0 || behind(s.items[last], e.Object) {
			if e.Type == source.Deleted {
				return false
			}
			s.items = append(s.items, e.Object)
			return true
		}
		s.place = make(map[[2]string]int, len(s.items)+1)
		for i, o := range s.items {
			s.place[place(o)] = i
			s.newest = max(s.newest, object.Version(o.GetResourceVersion()))
		}
	}
	version := object.Version(e.Object.GetResourceVersion())
	initial := version <= s.newest
	s.newest = max(s.newest, version)
	key := place(e.Object)
	i, known := s.place[key]
	switch {
	case e.Type == source.Deleted && known:
		s.holes++ // and s.items[i] is nowhere in place any more
		delete(s.place, key)
	case e.Type == source.Deleted:
	case known:
		s.items[i] = e.Object
	default:
		s.place[key] = len(s.items)
		s.items = append(s.items, e.Object)
		return initial
	}
	return false
}

func place[T object.Object](o T) [2]string { return [2]string{o.GetNamespace(), o.GetName()} }

// behind says that b comes after a in the order of keys.
func behind[T object.Object](a, b T) bool {
	x, y := a.GetNamespace(), b.GetNamespace()
	if x == y {
		return a.GetName() < b.GetName()
	}
	// A namespace that begins with another one: a slash decides.
	switch {
	case x == "" || y == "":
		return false
	case strings.HasPrefix(y, x):
		return '/' < y[len(x)]
	case strings.HasPrefix(x, y):
		return x[len(y)] < '/'
	}
	return x < y
}

func (s *stage[T]) len() int {
	if s.place == nil {
		return len(s.items)
	}
	return len(s.place)
}

// take returns the objects in the order in which they came.
func (s *stage[T]) take() []T {
	if s.holes == 0 {
		items := s.items
		*s = stage[T]{}
		return items
	}
	items := make([]T, 0, len(s.place))
	for i, o := range s.items {
		if j, ok := s.place[place(o)]; ok && i == j {
			items = append(items, o)
		}
	}
	*s = stage[T]{}
	return items
}
