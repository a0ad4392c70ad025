package share

import (
	"unsafe"
)

// loose is a string that lies where it cannot stay.
type loose struct {
	at   *string
	same int // which of those before it is equal to it; negative for none
}

// settle gives all loose strings of the object one piece of memory of their own.
// A string by itself takes half as much again, by the sizes that there are.
func (d *decoding) settle() {
	size := 0
	for _, l := range d.loose {
		if l.same < 0 {
			size += len(*l.at)
		}
	}
	home := make([]byte, 0, size)
	for _, l := range d.loose {
		if l.same >= 0 {
			*l.at = *d.loose[l.same].at
			continue
		}
		from := len(home)
		home = append(home, *l.at...)
		*l.at = unsafe.String(&home[from], len(*l.at))
	}
}

// view is the string that b is now.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// text sets a string.
func (d *decoding) text(b []byte, at *string) {
	if len(b) == 0 {
		return
	}
	if d.lasting {
		*at = view(b)
		return
	}
	// A pod has the name of its volume in every mount.
	for i := range min(len(d.loose), 32) {
		if d.loose[i].same < 0 && *d.loose[i].at == string(b) {
			*at = view(b)
			d.loose = append(d.loose, loose{at, i})
			return
		}
	}
	k, hash, again := d.memo.find(textSpecies, b)
	switch {
	case k != nil:
		*at = k.wire
	case again:
		*at = string(b)
		d.memo.remember(hash, &known{of: textSpecies, wire: *at})
	default:
		d.loosen(b, at)
	}
}

// loosen sets a string that is like no other.
func (d *decoding) loosen(b []byte, at *string) {
	*at = view(b)
	if !d.lasting && len(b) > 0 {
		d.loose = append(d.loose, loose{at, -1})
	}
}

// textAt sets a pointer to a string.
func (d *decoding) textAt(f *field, b []byte, to unsafe.Pointer) {
	k, hash, again := d.memo.find(f.species, b)
	if k != nil {
		*(*unsafe.Pointer)(to) = k.value
		return
	}
	at := new(string)
	*(*unsafe.Pointer)(to) = unsafe.Pointer(at)
	if !again {
		d.text(b, at)
		return
	}
	*at = string(b)
	d.memo.remember(hash, &known{of: f.species, wire: *at, value: unsafe.Pointer(at)})
}

// blob is a copy of bytes.
func (d *decoding) blob(b []byte) []byte {
	if len(b) == 0 {
		return []byte{}
	}
	if d.lasting {
		return b[:len(b):len(b)]
	}
	k, hash, again := d.memo.find(bytesSpecies, b)
	if k != nil {
		return unsafe.Slice((*byte)(k.value), len(b))
	}
	out := make([]byte, len(b))
	copy(out, b)
	if again {
		d.memo.remember(hash, &known{of: bytesSpecies, wire: view(out), value: unsafe.Pointer(unsafe.SliceData(out))})
	}
	return out
}
