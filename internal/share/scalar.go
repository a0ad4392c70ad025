package share

import (
	"encoding/binary"
	"unsafe"
)

// uvarint is [binary.Uvarint], quick for a single byte.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// field1 is the value of a length-delimited field behind its tag, and how many
// bytes it takes with its length; less than none if it is not all there.
func field1(b []byte) ([]byte, int) {
	size, n := uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, -1
	}
	return b[n : n+int(size)], n + int(size)
}

// skip is the number of bytes of a field's value, negative if it is not all there
// or of a wire type that Kubernetes does not use.
func skip(wire uint8, b []byte) int {
	n := -1
	switch wire {
	case wireVarint:
		if _, n = uvarint(b); n == 0 {
			n = -1
		}
	case wireFixed64:
		n = 8
	case wireBytes:
		_, n = field1(b)
	case wireFixed32:
		n = 4
	}
	if n > len(b) {
		return -1
	}
	return n
}

// run is how many bytes a repeated field at the beginning of b takes, and how
// often it is there; negative if it is not all there.
func run(tag uint64, wire uint8, b []byte) (size, count int) {
	for size < len(b) {
		t, n := uvarint(b[size:])
		if n <= 0 || t != tag {
			break
		}
		m := skip(wire, b[size+n:])
		if m < 0 {
			return -1, 0
		}
		size += n + m
		count++
	}
	return size, count
}

func setScalar(w what, v uint64, to unsafe.Pointer) {
	switch w {
	case wBool:
		*(*bool)(to) = v != 0
	case wInt32:
		*(*int32)(to) = int32(v)
	case wInt64:
		*(*int64)(to) = int64(v)
	}
}

// scalarAt sets a pointer to a number or a truth value.
func (d *decoding) scalarAt(f *field, v uint64, wire []byte, to unsafe.Pointer) {
	k, hash, again := d.memo.find(f.species, wire)
	if k != nil {
		*(*unsafe.Pointer)(to) = k.value
		return
	}
	var at unsafe.Pointer
	switch f.scalar {
	case wBool:
		at = unsafe.Pointer(new(bool))
	case wInt32:
		at = unsafe.Pointer(new(int32))
	default:
		at = unsafe.Pointer(new(int64))
	}
	setScalar(f.scalar, v, at)
	*(*unsafe.Pointer)(to) = at
	if again {
		d.memo.remember(hash, &known{of: f.species, wire: string(wire), value: at})
	}
}
