package share

import (
	"reflect"
	"sync"
	"unsafe"
)

// Decode makes of the encoding of an object in protobuf what its own Unmarshal
// would, but takes parts that have been seen before from the table. They are
// found by their encoding, so that nothing is allocated or worked out for them
// again: what [Table.Object] saves once an object is there is never made.
//
// o points at a zero struct. If Decode reports false it cannot tell what the
// object is to be: the type is not one of Kubernetes' own, or the encoding is
// broken, or not as Kubernetes writes it. Then o is to be thrown away, and
// Unmarshal to be used. If asked to, it leaves out metadata.managedFields, and
// does not look at it.
//
// wire is only needed during the call. The object must not be modified
// afterwards, nor may any of its parts.
func (t *Table) Decode(wire []byte, o any, dropManagedFields bool) bool {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return false
	}
	p := planFor(v.Type().Elem())
	if p.own {
		return false
	}
	t.memo.begin()
	d := decodings.Get().(*decoding)
	d.memo, d.drop = t.memo, dropManagedFields
	ok := d.message(p, wire, v.UnsafePointer(), true)
	if ok {
		d.settle()
		d.memo.nominate(d.candidates)
	}
	clear(d.loose)
	clear(d.candidates)
	*d = decoding{loose: d.loose[:0], candidates: d.candidates[:0]}
	decodings.Put(d)
	return ok
}

var decodings = sync.Pool{New: func() any { return &decoding{} }}

// decoding is the decoding of one object.
type decoding struct {
	memo *memo
	drop bool // managedFields of the object, not those of templates in it
	// dropping says that what is being read is the object's own metadata, of
	// which they are to be dropped.
	dropping bool
	// lasting says that the encoding being read is the part's own memory, in
	// which its strings may stay. Others are loose: they lie on the wire, and
	// have to settle elsewhere before it is gone.
	lasting bool
	loose   []loose
	// restless says that something has been decoded that is not to be shared.
	restless bool
	// candidates are parts that nobody has seen before. They can be told of once
	// the object is complete.
	candidates []candidate
}

// smallest is where it is quicker to decode a message than to look for it.
const smallest = 16

// message decodes the fields of a message into the struct at p. They must come
// in ascending order, as Kubernetes writes them, so that none comes twice. top is
// the object itself: its metadata, spec and status are unlike any other's.
func (d *decoding) message(p *plan, b []byte, at unsafe.Pointer, top bool) bool {
	if p.own {
		return d.own(p, b, at)
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
		if number >= uint64(len(p.fields)) || p.fields[number].what == wNone {
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
		switch f.what {
		case wBool, wInt32, wInt64, wPointer:
			if f.wire != wireVarint {
				break
			}
			v, n := uvarint(b[i:])
			if n <= 0 {
				return false
			}
			if f.what == wPointer {
				d.scalarAt(f, v, b[i:i+n], to)
			} else {
				setScalar(f.what, v, to)
			}
			i += n
			continue
		case wMessages, wStrings, wMap, wInt32s, wInt64s:
			n, count := run(tag, wire, b[start:])
			if n < 0 {
				return false
			}
			i = start + n
			if (!f.managed || !d.dropping) && !d.run(f, b[start:i], count, to) {
				return false
			}
			continue
		}
		value, n := field1(b[i:])
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

// value decodes a field that is length-delimited and comes once.
func (d *decoding) value(f *field, b []byte, to unsafe.Pointer, top bool) bool {
	switch f.what {
	case wString:
		d.text(b, (*string)(to))
	case wUnique:
		d.loosen(b, (*string)(to))
	case wBytes:
		*(*[]byte)(to) = d.blob(b)
	case wMessage:
		if top {
			d.dropping = d.drop && f.elem.typ == objectMetaType
			ok := d.message(f.elem, b, to, false)
			d.dropping = false
			return ok
		}
		if len(b) < smallest {
			return d.message(f.elem, b, to, false)
		}
		return d.partInto(f.elem, b, to)
	case wPointer:
		if f.elem == nil {
			d.textAt(f, b, to)
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

// partInto decodes a message that is a part of the struct or array around it.
func (d *decoding) partInto(p *plan, b []byte, to unsafe.Pointer) bool {
	from, ok := d.part(p, b, to)
	if ok && from != to {
		reflect.NewAt(p.typ, to).Elem().Set(reflect.NewAt(p.typ, from).Elem())
	}
	return ok
}

// part returns a message: one that is remembered, or else a new one, which is at
// to if it need not be remembered. With a nil to it is always memory by itself.
func (d *decoding) part(p *plan, b []byte, to unsafe.Pointer) (unsafe.Pointer, bool) {
	if p.restless {
		if to == nil {
			to = reflect.New(p.typ).UnsafePointer()
		}
		return to, d.message(p, b, to, false)
	}
	return d.common(&p.species, b, 0, func(b []byte, again bool) (unsafe.Pointer, bool) {
		if again || to == nil {
			to = reflect.New(p.typ).UnsafePointer()
		}
		return to, d.message(p, b, to, false)
	})
}

// common returns the part whose encoding is b. One that has been seen before it
// has decoded from an encoding of its own, and remembers. One that must not be
// shared it leaves alone.
func (d *decoding) common(of *species, b []byte, count int, decode func(b []byte, again bool) (unsafe.Pointer, bool)) (unsafe.Pointer, bool) {
	k, hash, again := d.memo.find(of, b)
	if k != nil {
		return k.value, true
	}
	if d.lasting { // in the middle of a part that is being remembered
		return decode(b, false)
	}
	before := d.restless
	d.restless = false
	wire := ""
	if again {
		wire = string(b)
		b, d.lasting = unsafe.Slice(unsafe.StringData(wire), len(wire)), true
	}
	value, ok := decode(b, again)
	d.lasting = false
	switch {
	case !ok || d.restless || len(b) > longest:
	case again:
		value = d.memo.elect(candidate{of, hash, value, count})
		d.memo.remember(hash, &known{of: of, wire: wire, value: value})
	default:
		d.candidates = append(d.candidates, candidate{of, hash, value, count})
	}
	d.restless = d.restless || before
	return value, ok
}

// own has a message decoded by its type.
func (d *decoding) own(p *plan, b []byte, at unsafe.Pointer) bool {
	d.restless = d.restless || p.restless
	return reflect.NewAt(p.typ, at).Interface().(ownMessage).Unmarshal(b) == nil
}

// run decodes a field that is repeated: b is all of it, tags included.
func (d *decoding) run(f *field, b []byte, count int, to unsafe.Pointer) bool {
	value, ok := d.common(f.species, b, count, func(b []byte, _ bool) (unsafe.Pointer, bool) {
		if f.what == wMap {
			return d.entries(f, b, count)
		}
		return d.elements(f, b, count)
	})
	if ok {
		f.set(to, value, count)
	}
	return ok
}

// set makes the field at to a slice or a map.
func (f *field) set(to, value unsafe.Pointer, count int) {
	if f.what == wMap {
		*(*unsafe.Pointer)(to) = value // a map is a pointer to its header
		return
	}
	*(*header)(to) = header{value, count, count}
}

// elements makes the array of a slice.
func (d *decoding) elements(f *field, b []byte, count int) (unsafe.Pointer, bool) {
	array := f.rows.make(count)
	size := f.rows.of.Size()
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
		value, n := field1(b)
		if n < 0 {
			return nil, false
		}
		b = b[n:]
		switch {
		case f.what == wStrings:
			d.text(value, (*string)(at))
		case count == 1: // the run has been looked for
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
