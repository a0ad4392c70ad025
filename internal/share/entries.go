package share

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// entries makes a map. Its keys are strings of some type, and its values are of
// the three types there are, or types like them, which are the same in memory.
func (d *decoding) entries(f *field, b []byte, count int) (unsafe.Pointer, bool) {
	switch f.values {
	case ofStrings:
		m := make(map[string]string, count)
		ok := d.eachEntry(b, false, func(key string, value []byte, stay func([]byte) string) bool {
			m[key] = stay(value)
			return true
		})
		return *(*unsafe.Pointer)(unsafe.Pointer(&m)), ok
	case ofBytes:
		m := make(map[string][]byte, count)
		ok := d.eachEntry(b, true, func(key string, value []byte, _ func([]byte) string) bool {
			m[key] = d.blob(value)
			return true
		})
		return *(*unsafe.Pointer)(unsafe.Pointer(&m)), ok
	default:
		m := make(map[string]resource.Quantity, count)
		ok := d.eachEntry(b, false, func(key string, value []byte, _ func([]byte) string) bool {
			q, ok := d.quantity(f.elem, value)
			m[key] = q
			return ok
		})
		return *(*unsafe.Pointer)(unsafe.Pointer(&m)), ok
	}
}

// eachEntry visits the entries of a map: messages of a key and a value, each
// there once, or of a key alone if valueless. stay makes a string of bytes of
// the entry.
func (d *decoding) eachEntry(b []byte, valueless bool, visit func(key string, value []byte, stay func([]byte) string) bool) bool {
	wire, home := b, b // home is where strings may stay
	if !d.lasting {
		home = nil
	}
	stay := func(s []byte) string {
		if len(s) == 0 {
			return ""
		}
		if !d.lasting {
			k, hash, again := d.memo.find(textSpecies, s)
			if k != nil {
				return k.wire
			}
			if again {
				own := string(s)
				d.memo.remember(hash, &known{of: textSpecies, wire: own})
				return own
			}
		}
		if home == nil {
			home = append(make([]byte, 0, len(wire)), wire...)
		}
		from := uintptr(unsafe.Pointer(unsafe.SliceData(s))) - uintptr(unsafe.Pointer(unsafe.SliceData(wire)))
		return view(home[from : from+uintptr(len(s))])
	}
	for len(b) > 0 {
		_, n := uvarint(b)
		entry, m := field1(b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
		if len(entry) == 0 || entry[0] != 1<<3|wireBytes {
			return false
		}
		key, n := field1(entry[1:])
		if n < 0 {
			return false
		}
		entry = entry[1+n:]
		if len(entry) == 0 && valueless {
			if !visit(stay(key), nil, stay) {
				return false
			}
			continue
		}
		if len(entry) == 0 || entry[0] != 2<<3|wireBytes {
			return false
		}
		value, n := field1(entry[1:])
		if n != len(entry)-1 || !visit(stay(key), value, stay) {
			return false
		}
	}
	return true
}

// quantity decodes a Quantity that whoever reads it will make a copy of.
func (d *decoding) quantity(p *plan, b []byte) (resource.Quantity, bool) {
	k, hash, again := d.memo.find(&p.species, b)
	if k != nil {
		return *(*resource.Quantity)(k.value), true
	}
	q := new(resource.Quantity)
	if q.Unmarshal(b) != nil {
		return *q, false
	}
	// One too big for an int64 refers to memory that its copies have in common.
	if !reflect.ValueOf(q).Elem().FieldByName("d").Field(0).IsNil() {
		d.restless = true
	} else if again {
		d.memo.remember(hash, &known{of: &p.species, wire: string(b), value: unsafe.Pointer(q)})
	}
	return *q, true
}
