package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"
)

// shape describes the memory of a type: its size, and the offsets of its links to
// other memory.
type shape struct {
	size  uintptr
	salt  uint64 // tells equal memory of different types apart
	links []link
	// mutable memory is not shared, because readers write to it: a Quantity caches
	// its string when it is first asked for it.
	mutable bool
}

type linkKind uint8

const (
	linkString linkKind = iota
	linkPointer
	linkSlice
	linkMap
)

// link is a string, pointer, slice or map within a value.
type link struct {
	offset   uintptr
	kind     linkKind
	elem     *shape       // of the pointee or of the elements of a slice
	slice    reflect.Type // for toSlice
	shareMap func(t *Table, at unsafe.Pointer)
}

var (
	shapes    sync.Map // reflect.Type → *shape
	shapesMu  sync.Mutex
	textShape = &shape{size: 1, salt: 0x9e3779b97f4a7c15}
)

// shapeOf returns the shape of a type. It is computed once for each type: shapes is
// type information, not state.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	shapesMu.Lock()
	defer shapesMu.Unlock()
	making := map[reflect.Type]*shape{}
	s := makeShape(t, making)
	for t, s := range making { // complete now, recursive types too
		shapes.LoadOrStore(t, s)
	}
	return s
}

func makeShape(t reflect.Type, making map[reflect.Type]*shape) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	if s, ok := making[t]; ok {
		return s
	}
	s := &shape{size: t.Size(), salt: maphash.String(salts, t.PkgPath()+"."+t.String())}
	making[t] = s
	s.add(t, 0, making)
	return s
}

var salts = maphash.MakeSeed()

// add finds the links in a value of type t at offset. It ignores interfaces,
// functions and channels, whose contents are unknown.
func (s *shape) add(t reflect.Type, offset uintptr, making map[reflect.Type]*shape) {
	switch t.Kind() {
	case reflect.String:
		s.links = append(s.links, link{offset: offset, kind: linkString})
	case reflect.Pointer:
		if t.Elem() != locationType { // there are few locations, and they are compared by address
			s.links = append(s.links, link{offset: offset, kind: linkPointer, elem: makeShape(t.Elem(), making)})
		}
	case reflect.Slice:
		s.links = append(s.links, link{offset: offset, kind: linkSlice, elem: makeShape(t.Elem(), making), slice: t})
	case reflect.Map:
		if share := mapSharer(t); share != nil {
			s.links = append(s.links, link{offset: offset, kind: linkMap, shareMap: share})
		}
	case reflect.Array:
		for i := range t.Len() {
			s.add(t.Elem(), offset+uintptr(i)*t.Elem().Size(), making)
		}
	case reflect.Struct:
		if t == quantityType {
			s.mutable = true
		}
		for i := range t.NumField() {
			f := t.Field(i)
			s.add(f.Type, offset+f.Offset, making)
		}
	}
}
