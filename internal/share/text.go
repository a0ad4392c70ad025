package share

import (
	"unsafe"
)

// alias is a string of the object that still points into the encoding, which is
// only valid during the call of Decode.
type alias struct {
	at   *string
	same int // index of an equal alias before it; negative if there is none
}

// copyAliases copies all aliases of the object into one piece of memory. Strings
// allocated one by one would take half as much again, because of the allocator's
// size classes.
func (d *decoding) copyAliases() {
	size := 0
	for _, a := range d.aliases {
		if a.same < 0 {
			size += len(*a.at)
		}
	}
	memory := make([]byte, 0, size)
	for _, a := range d.aliases {
		if a.same >= 0 {
			*a.at = *d.aliases[a.same].at
			continue
		}
		from := len(memory)
		memory = append(memory, *a.at...)
		*a.at = unsafe.String(&memory[from], len(*a.at))
	}
}

// stringOf returns a string that shares the memory of b.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// setString sets the string at at.
func (d *decoding) setString(b []byte, at *string) {
	if len(b) == 0 {
		return
	}
	if d.retained {
		*at = stringOf(b)
		return
	}
	// Strings repeat within an object: each mount has the name of its volume.
	for i := range min(len(d.aliases), 32) {
		if d.aliases[i].same < 0 && *d.aliases[i].at == string(b) {
			*at = stringOf(b)
			d.aliases = append(d.aliases, alias{at, i})
			return
		}
	}
	e, hash, again := d.memo.find(stringPart, b)
	switch {
	case e != nil:
		*at = e.wire
	case again:
		*at = string(b)
		d.memo.add(hash, &memoEntry{of: stringPart, wire: *at})
	default:
		d.setUnique(b, at)
	}
}

// setUnique sets a string that is not worth looking up.
func (d *decoding) setUnique(b []byte, at *string) {
	*at = stringOf(b)
	if !d.retained && len(b) > 0 {
		d.aliases = append(d.aliases, alias{at, -1})
	}
}

// setStringPointer sets a pointer to a string.
func (d *decoding) setStringPointer(f *field, b []byte, to unsafe.Pointer) {
	e, hash, again := d.memo.find(f.partType, b)
	if e != nil {
		*(*unsafe.Pointer)(to) = e.value
		return
	}
	at := new(string)
	*(*unsafe.Pointer)(to) = unsafe.Pointer(at)
	if !again {
		d.setString(b, at)
		return
	}
	*at = string(b)
	d.memo.add(hash, &memoEntry{of: f.partType, wire: *at, value: unsafe.Pointer(at)})
}

// bytes returns a copy of b, or an equal slice that is shared.
func (d *decoding) bytes(b []byte) []byte {
	if len(b) == 0 {
		return []byte{}
	}
	if d.retained {
		return b[:len(b):len(b)]
	}
	e, hash, again := d.memo.find(bytesPart, b)
	if e != nil {
		return unsafe.Slice((*byte)(e.value), len(b))
	}
	out := make([]byte, len(b))
	copy(out, b)
	if again {
		d.memo.add(hash, &memoEntry{of: bytesPart, wire: stringOf(out), value: unsafe.Pointer(unsafe.SliceData(out))})
	}
	return out
}
