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

// mapSharer returns a function that shares maps of type t, or nil for the types
// that are too rare to be worth it. Types with the same underlying type have the
// same layout in memory.
func mapSharer(t reflect.Type) func(*Table, unsafe.Pointer) {
	if t.Key().Kind() != reflect.String {
		return nil
	}
	switch {
	case t.Elem().Kind() == reflect.String:
		return shareMap[string]
	case t.Elem() == quantityType: // a read from a map copies the value
		return shareMap[resource.Quantity]
	}
	return nil
}

// mapShapes distinguish maps by the type of their values.
var mapShapes = map[reflect.Type]*shape{
	reflect.TypeFor[string](): {salt: 0x1f83d9abfb41bd6b},
	quantityType:              {salt: 0x5be0cd19137e2179},
}

// shareMap shares the map at at. Its keys are of a string type, and its values are
// V or have the same underlying type. The memory layout of a map is the runtime's
// own, so maps are hashed and compared by their contents. Keys and values are not
// shared themselves: writing to the map might move them.
func shareMap[V comparable](t *Table, at unsafe.Pointer) {
	m := *(*map[string]V)(at)
	if len(m) == 0 {
		return
	}
	of := mapShapes[reflect.TypeFor[V]()]
	hash := of.salt + uint64(len(m))
	for k, v := range m {
		// A sum, because the order of iteration is random.
		hash += maphash.String(t.seed, k)*0x9e3779b97f4a7c15 ^ maphash.Comparable(t.seed, v)
	}
	if found, ok := t.lookup(hash); ok {
		// A map is a pointer to its header.
		if found.of == of && equal(*(*map[string]V)(unsafe.Pointer(&found.at)), m) {
			*(*unsafe.Pointer)(at) = found.at
		}
	} else if t.seenBefore(hash) {
		t.add(hash, part{of: of, at: *(*unsafe.Pointer)(at)})
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
