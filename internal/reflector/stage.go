package reflector

import (
	"strings"

	"github.com/tidings-io/tidings/internal/object"
)

// Stage collects the initial events of a WatchList stream until their end: a server
// may send changes among them.
type Stage[T object.Object] struct {
	items []T
	// index finds an object in items by namespace and name. It is nil as long as
	// objects come in the order of their keys, which is the order of etcd and of
	// API servers: an object after the last one is new.
	index   map[[2]string]int
	newest  uint64 // version of all events, if there is an index
	deleted int    // items that are no longer in the index
}

// NewStage returns a Stage with room for a number of objects.
func NewStage[T object.Object](objects int) *Stage[T] { return &Stage[T]{items: make([]T, 0, objects)} }

// Set adds or replaces an object. It reports whether the event shows that the
// initial events still go on: the object is new, and either the next in order or
// older than an earlier one. Changes made during the stream are newer than
// everything.
func (s *Stage[T]) Set(o T) (initial bool) {
	if s.isNext(o) {
		s.items = append(s.items, o)
		return true
	}
	i, known, initial := s.find(o)
	if known {
		s.items[i] = o
		return false
	}
	s.index[indexKey(o)] = len(s.items)
	s.items = append(s.items, o)
	return initial
}

// Delete removes an object if it is there.
func (s *Stage[T]) Delete(o T) {
	if s.isNext(o) {
		return
	}
	if _, known, _ := s.find(o); known {
		s.deleted++
		delete(s.index, indexKey(o))
	}
}

// isNext reports whether all objects, and o after them, are in order.
func (s *Stage[T]) isNext(o T) bool {
	last := len(s.items) - 1
	return s.index == nil && (last < 0 || less(s.items[last], o))
}

// find looks an object up in the index, which it makes first if need be. It also
// reports whether the object's version is not newer than all before.
func (s *Stage[T]) find(o T) (i int, known, older bool) {
	if s.index == nil {
		s.index = make(map[[2]string]int, len(s.items)+1)
		for i, o := range s.items {
			s.index[indexKey(o)] = i
			s.newest = max(s.newest, object.Version(o.GetResourceVersion()))
		}
	}
	version := object.Version(o.GetResourceVersion())
	older = version <= s.newest
	s.newest = max(s.newest, version)
	i, known = s.index[indexKey(o)]
	return i, known, older
}

func indexKey[T object.Object](o T) [2]string { return [2]string{o.GetNamespace(), o.GetName()} }

// less reports whether a comes before b in the order of keys.
func less[T object.Object](a, b T) bool {
	x, y := a.GetNamespace(), b.GetNamespace()
	if x == y {
		return a.GetName() < b.GetName()
	}
	switch { // if one namespace is a prefix of the other, the slash after it decides
	case x == "" || y == "":
		return false
	case strings.HasPrefix(y, x):
		return '/' < y[len(x)]
	case strings.HasPrefix(x, y):
		return x[len(y)] < '/'
	}
	return x < y
}

// Len returns the number of objects.
func (s *Stage[T]) Len() int { return len(s.items) - s.deleted }

// Take returns the objects in the order in which they came, and empties the Stage.
func (s *Stage[T]) Take() []T {
	items := s.items
	if s.deleted > 0 {
		items = make([]T, 0, s.Len())
		for i, o := range s.items {
			if j, ok := s.index[indexKey(o)]; ok && i == j {
				items = append(items, o)
			}
		}
	}
	*s = Stage[T]{}
	return items
}
