package share

import (
	"reflect"
	"unsafe"

	"k8s.io/apimachinery/pkg/api/resource"
)

// entries makes a map. Its keys are of a string type, and its values of one of three
// types or of types with the same layout.
func (d *decoding) entries(f *field, b []byte, count int) (unsafe.Pointer, bool) {
	switch f.values {
	case ofStrings:
		m := make(map[string]string, count)
		ok := d.eachEntry(b, false, func(key string, value []byte, keep func([]byte) string) bool {
			m[key] = keep(value)
			return true
		})
		return *(*unsafe.Pointer)(unsafe.Pointer(&m)), ok
	case ofBytes:
		m := make(map[string][]byte, count)
		ok := d.eachEntry(b, true, func(key string, value []byte, _ func([]byte) string) bool {
			m[key] = d.bytes(value)
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

// eachEntry visits the entries of a map: messages with one key and one value, or
// with a key alone if valueless. keep makes a string of bytes within the entry.
func (d *decoding) eachEntry(b []byte, valueless bool, visit func(key string, value []byte, keep func([]byte) string) bool) bool {
	wire, memory := b, b // memory is what the strings point into
	if !d.retained {
		memory = nil
	}
	keep := func(s []byte) string {
		if len(s) == 0 {
			return ""
		}
		if !d.retained {
			e, hash, again := d.memo.find(stringPart, s)
			if e != nil {
				return e.wire
			}
			if again {
				own := string(s)
				d.memo.add(hash, &memoEntry{of: stringPart, wire: own})
				return own
			}
		}
		if memory == nil {
			memory = append(make([]byte, 0, len(wire)), wire...)
		}
		from := uintptr(unsafe.Pointer(unsafe.SliceData(s))) - uintptr(unsafe.Pointer(unsafe.SliceData(wire)))
		return stringOf(memory[from : from+uintptr(len(s))])
	}
	for len(b) > 0 {
		_, n := uvarint(b)
		entry, m := lengthDelimited(b[n:])
		if m < 0 {
			return false
		}
		b = b[n+m:]
		if len(entry) == 0 || entry[0] != 1<<3|wireBytes {
			return false
		}
		key, n := lengthDelimited(entry[1:])
		if n < 0 {
			return false
		}
		entry = entry[1+n:]
		if len(entry) == 0 && valueless {
			if !visit(keep(key), nil, keep) {
				return false
			}
			continue
		}
		if len(entry) == 0 || entry[0] != 2<<3|wireBytes {
			return false
		}
		value, n := lengthDelimited(entry[1:])
		if n != len(entry)-1 || !visit(keep(key), value, keep) {
			return false
		}
	}
	return true
}

// quantity decodes a Quantity of a map, whose readers get copies.
func (d *decoding) quantity(p *plan, b []byte) (resource.Quantity, bool) {
	e, hash, again := d.memo.find(&p.partType, b)
	if e != nil {
		return *(*resource.Quantity)(e.value), true
	}
	q := new(resource.Quantity)
	if q.Unmarshal(b) != nil {
		return *q, false
	}
	// Copies of a Quantity that does not fit into an int64 share memory.
	if !reflect.ValueOf(q).Elem().FieldByName("d").Field(0).IsNil() {
		d.mutable = true
	} else if again {
		d.memo.add(hash, &memoEntry{of: &p.partType, wire: string(b), value: unsafe.Pointer(q)})
	}
	return *q, true
}
