package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"
)

// shape is what there is to know of a type: where in its memory there are links
// to other memory.
type shape struct {
	size  uintptr
	salt  uint64 // tells equal memory of different types apart
	links []link
	// restless memory is written to by those who only mean to read: a Quantity
	// remembers its string once it has been asked for it. It is not shared.
	restless bool
}

type kind uint8

const (
	toString kind = iota
	toPointer
	toSlice
	toMap
)

// link is a place in memory that refers to other memory.
type link struct {
	offset   uintptr
	kind     kind
	elem     *shape       // of what is there; of the elements of a slice
	slice    reflect.Type // for toSlice
	shareMap func(t *Table, at unsafe.Pointer)
}

var (
	shapes    sync.Map // reflect.Type → *shape
	shapesMu  sync.Mutex
	textShape = &shape{size: 1, salt: 0x9e3779b97f4a7c15}
)

// shapeOf is the shape of a type. It is worked out once for each type: this is
// the program's type information in another form, not state.
func shapeOf(t reflect.Type) *shape {
	if s, ok := shapes.Load(t); ok {
		return s.(*shape)
	}
	shapesMu.Lock()
	defer shapesMu.Unlock()
	making := map[reflect.Type]*shape{}
	s := makeShape(t, making)
	for t, s := range making { // complete now, also those that refer to themselves
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

// add finds the links in a value of type t at offset. What is behind interfaces,
// functions and channels is left alone: nobody can say what it is.
func (s *shape) add(t reflect.Type, offset uintptr, making map[reflect.Type]*shape) {
	switch t.Kind() {
	case reflect.String:
		s.links = append(s.links, link{offset: offset, kind: toString})
	case reflect.Pointer:
		if t.Elem() != locationType { // there are few, and they are compared by address
			s.links = append(s.links, link{offset: offset, kind: toPointer, elem: makeShape(t.Elem(), making)})
		}
	case reflect.Slice:
		s.links = append(s.links, link{offset: offset, kind: toSlice, elem: makeShape(t.Elem(), making), slice: t})
	case reflect.Map:
		if share := mapSharer(t); share != nil {
			s.links = append(s.links, link{offset: offset, kind: toMap, shareMap: share})
		}
	case reflect.Array:
		for i := range t.Len() {
			s.add(t.Elem(), offset+uintptr(i)*t.Elem().Size(), making)
		}
	case reflect.Struct:
		if t == quantityType {
			s.restless = true
		}
		for i := range t.NumField() {
			f := t.Field(i)
			s.add(f.Type, offset+f.Offset, making)
		}
	}
}
