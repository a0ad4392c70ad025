package share

import (
	"reflect"
	"sync"
	"unsafe"
)

// Decode decodes an object from protobuf as its own Unmarshal would, but reuses parts
// that the table has seen before. It finds them by their encoding, so it neither
// allocates nor decodes them again.
//
// o must point to a zero struct. Decode returns false if the type is not one of
// Kubernetes' own, or if the encoding is broken or not as Kubernetes writes it. The
// caller must then discard o and use Unmarshal. With dropManagedFields, Decode skips
// metadata.managedFields without checking it.
//
// wire is only used during the call. Neither the object nor its parts may be
// modified afterwards.
func (t *Table) Decode(wire []byte, o any, dropManagedFields bool) bool {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	p := planFor(v.Type().Elem())
	if p.custom {
		return false
	}
	t.memo.begin()
	d := decodings.Get().(*decoding)
	d.memo, d.drop = t.memo, dropManagedFields
	ok := d.message(p, wire, v.UnsafePointer(), true)
	if ok {
		d.copyAliases()
		d.memo.addCandidates(d.candidates)
	}
	clear(d.aliases)
	clear(d.candidates)
	*d = decoding{aliases: d.aliases[:0], candidates: d.candidates[:0]}
	decodings.Put(d)
	return ok
}

var decodings = sync.Pool{New: func() any { return &decoding{} }}

// decoding is the state of decoding one object.
type decoding struct {
	memo *memo
	drop bool // managedFields of the object, not those of templates in it
	// dropping is set while the object's own metadata is decoded, if managedFields
	// are to be dropped.
	dropping bool
	// retained is set while the encoding being decoded is one that the memo keeps:
	// strings may point into it. Otherwise they point into wire, are noted in
	// aliases, and are copied before Decode returns.
	retained bool
	aliases  []alias
	// mutable is set once something has been decoded that must not be shared.
	mutable bool
	// candidates are parts that have not been seen before. They are added to the
	// memo when the object is complete.
	candidates []candidate
}

// A message shorter than minEncoding is decoded faster than looked up.
const minEncoding = 16

// message decodes the fields of a message into the struct at at. They must be in
// ascending order, as Kubernetes writes them, so none comes twice. top marks the
// object itself: its metadata, spec and status are unique and not looked up.
func (d *decoding) message(p *plan, b []byte, at unsafe.Pointer, top bool) bool {
	if p.custom {
		return d.unmarshal(p, b, at)
	}
	last := uint64(0)
	for i := 0; i < len(b); {
		start := i
		tag, n := uvarint(b[i:])
		number, wire := tag>>3, uint8(tag&7)
		if n <= 0 || number == 0 || tag >= 1<<31 {
			return false
		}
		i += n
		if number >= uint64(len(p.fields)) || p.fields[number].kind == kindNone {
			if n = skip(wire, b[i:]); n < 0 {
				return false
			}
			i += n
			continue
		}
		f := &p.fields[number]
		if wire != f.wire || number <= last {
			return false
		}
		last = number
		to := unsafe.Add(at, f.offset)
		switch f.kind {
		case kindBool, kindInt32, kindInt64, kindPointer:
			if f.wire != wireVarint {
				break
			}
			v, n := uvarint(b[i:])
			if n <= 0 {
				return false
			}
			if f.kind == kindPointer {
				d.setScalarPointer(f, v, b[i:i+n], to)
			} else {
				setScalar(f.kind, v, to)
			}
			i += n
			continue
		case kindMessages, kindStrings, kindMap, kindInt32s, kindInt64s:
			n, count := repeated(tag, wire, b[start:])
			if n < 0 {
				return false
			}
			i = start + n
			if (!f.managed || !d.dropping) && !d.repeated(f, b[start:i], count, to) {
				return false
			}
			continue
		}
		value, n := lengthDelimited(b[i:])
		if n < 0 {
			return false
		}
		i += n
		if !d.value(f, value, to, top) {
			return false
		}
	}
	return true
}

// value decodes a length-delimited field that is not repeated.
func (d *decoding) value(f *field, b []byte, to unsafe.Pointer, top bool) bool {
	switch f.kind {
	case kindString:
		d.setString(b, (*string)(to))
	case kindUnique:
		d.setUnique(b, (*string)(to))
	case kindBytes:
		*(*[]byte)(to) = d.bytes(b)
	case kindMessage:
		if top {
			d.dropping = d.drop && f.elem.typ == objectMetaType
			ok := d.message(f.elem, b, to, false)
			d.dropping = false
			return ok
		}
		if len(b) < minEncoding {
			return d.message(f.elem, b, to, false)
		}
		return d.partInto(f.elem, b, to)
	case kindPointer:
		if f.elem == nil {
			d.setStringPointer(f, b, to)
			return true
		}
		from, ok := d.part(f.elem, b, nil)
		if ok {
			*(*unsafe.Pointer)(to) = from
		}
		return ok
	}
	return true
}

// partInto decodes a message that is embedded in the struct or array around it.
func (d *decoding) partInto(p *plan, b []byte, to unsafe.Pointer) bool {
	from, ok := d.part(p, b, to)
	if ok && from != to {
		reflect.NewAt(p.typ, to).Elem().Set(reflect.NewAt(p.typ, from).Elem())
	}
	return ok
}

// part returns a message: one from the memo, or a new one. A new one that is not
// added to the memo is decoded into to, unless to is nil.
func (d *decoding) part(p *plan, b []byte, to unsafe.Pointer) (unsafe.Pointer, bool) {
	if p.mutable {
		if to == nil {
			to = reflect.New(p.typ).UnsafePointer()
		}
		return to, d.message(p, b, to, false)
	}
	return d.intern(&p.partType, b, 0, func(b []byte, again bool) (unsafe.Pointer, bool) {
		if again || to == nil {
			to = reflect.New(p.typ).UnsafePointer()
		}
		return to, d.message(p, b, to, false)
	})
}

// intern returns the part whose encoding is b. It adds a part that has been seen
// before to the memo, decoded from a copy of its encoding that the memo keeps. It
// does not add parts that must not be shared.
func (d *decoding) intern(of *partType, b []byte, count int, decode func(b []byte, again bool) (unsafe.Pointer, bool)) (unsafe.Pointer, bool) {
	e, hash, again := d.memo.find(of, b)
	if e != nil {
		return e.value, true
	}
	if d.retained { // within a part that is being added
		return decode(b, false)
	}
	before := d.mutable
	d.mutable = false
	wire := ""
	if again {
		wire = string(b)
		b, d.retained = unsafe.Slice(unsafe.StringData(wire), len(wire)), true
	}
	value, ok := decode(b, again)
	d.retained = false
	switch {
	case !ok || d.mutable || len(b) > maxEncoding:
	case again:
		value = d.memo.matchCandidate(candidate{of, hash, value, count})
		d.memo.add(hash, &memoEntry{of: of, wire: wire, value: value})
	default:
		d.candidates = append(d.candidates, candidate{of, hash, value, count})
	}
	d.mutable = d.mutable || before
	return value, ok
}

// unmarshal decodes a message by its type's own method.
func (d *decoding) unmarshal(p *plan, b []byte, at unsafe.Pointer) bool {
	d.mutable = d.mutable || p.mutable
	return reflect.NewAt(p.typ, at).Interface().(unmarshaler).Unmarshal(b) == nil
}

// repeated decodes a repeated field: b is all of it, tags included.
func (d *decoding) repeated(f *field, b []byte, count int, to unsafe.Pointer) bool {
	value, ok := d.intern(f.partType, b, count, func(b []byte, _ bool) (unsafe.Pointer, bool) {
		if f.kind == kindMap {
			return d.entries(f, b, count)
		}
		return d.elements(f, b, count)
	})
	if ok {
		f.set(to, value, count)
	}
	return ok
}

// set sets the field at to to a slice or a map.
func (f *field) set(to, value unsafe.Pointer, count int) {
	if f.kind == kindMap {
		*(*unsafe.Pointer)(to) = value // a map is a pointer to its header
		return
	}
	*(*header)(to) = header{value, count, count}
}

// elements makes the array of a slice.
func (d *decoding) elements(f *field, b []byte, count int) (unsafe.Pointer, bool) {
	array := f.arrays.make(count)
	size := f.arrays.of.Size()
	for i := uintptr(0); len(b) > 0; i++ {
		at := unsafe.Add(array, i*size)
		_, n := uvarint(b)
		b = b[n:]
		if f.wire == wireVarint {
			v, n := uvarint(b)
			if n <= 0 {
				return nil, false
			}
			setScalar(f.scalar, v, at)
			b = b[n:]
			continue
		}
		value, n := lengthDelimited(b)
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		switch {
		case f.kind == kindStrings:
			d.setString(value, (*string)(at))
		case count == 1: // the field as a whole has been looked up already
			if !d.message(f.elem, value, at, false) {
				return nil, false
			}
		default:
			if !d.partInto(f.elem, value, at) {
				return nil, false
			}
		}
	}
	return array, true
}
