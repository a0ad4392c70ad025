package share

import (
	"hash/maphash"
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	locationType = reflect.TypeFor[time.Location]()
	quantityType = reflect.TypeFor[resource.Quantity]()
)

// mapSharer returns how to share maps of type t, nil for those that are rare
// enough to be left alone. A type whose underlying type is one of the known ones
// is the same in memory.
func mapSharer(t reflect.Type) func(*Table, unsafe.Pointer) {
	if t.Key().Kind() != reflect.String {
		return nil
	}
	switch {
	case t.Elem().Kind() == reflect.String:
		return shareMap[string]
	case t.Elem() == quantityType: // reading one out of a map makes a copy
		return shareMap[resource.Quantity]
	}
	return nil
}

// mapShapes tell the maps of different values apart.
var mapShapes = map[reflect.Type]*shape{
	reflect.TypeFor[string](): {salt: 0x1f83d9abfb41bd6b},
	quantityType:              {salt: 0x5be0cd19137e2179},
}

// shareMap shares the map at at, whose keys are strings of some type and whose
// values are V or of the same underlying type. The memory of a map is not to be
// looked at, so it is hashed and compared by its contents. Its keys and values
// stay as they are: writing to it might move them.
func shareMap[V comparable](t *Table, at unsafe.Pointer) {
	m := *(*map[string]V)(at)
	if len(m) == 0 {
		return
	}
	of := mapShapes[reflect.TypeFor[V]()]
	hash := of.salt + uint64(len(m))
	for k, v := range m {
		// A sum, since the order is not fixed.
		hash += maphash.String(t.seed, k)*0x9e3779b97f4a7c15 ^ maphash.Comparable(t.seed, v)
	}
	if known, ok := t.known(hash); ok {
		// A map is a pointer to its header.
		if known.of == of && equal(*(*map[string]V)(unsafe.Pointer(&known.at)), m) {
			*(*unsafe.Pointer)(at) = known.at
		}
	} else if t.again(hash) {
		t.remember(hash, part{of: of, at: *(*unsafe.Pointer)(at)})
	}
}

func equal[V comparable](a, b map[string]V) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}
