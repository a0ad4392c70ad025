package share

import (
	"encoding/binary"
	"unsafe"
)

// uvarint is [binary.Uvarint] with a fast path for a single byte.
func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// lengthDelimited returns the value of a length-delimited field, without the tag,
// and the size of value and length together. The size is negative if b is too short.
func lengthDelimited(b []byte) ([]byte, int) {
	size, n := uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, -1
	}
	return b[n : n+int(size)], n + int(size)
}

// skip returns the size of a field's value. It is negative if b is too short or the
// wire type is one that Kubernetes does not use.
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
		_, n = lengthDelimited(b)
	case wireFixed32:
		n = 4
	}
	if n > len(b) {
		return -1
	}
	return n
}

// repeated returns the size of the repeated field that b begins with, tags included,
// and the number of its elements. The size is negative if b is too short.
func repeated(tag uint64, wire uint8, b []byte) (size, count int) {
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

func setScalar(kind fieldKind, v uint64, to unsafe.Pointer) {
	switch kind {
	case kindBool:
		*(*bool)(to) = v != 0
	case kindInt32:
		*(*int32)(to) = int32(v)
	case kindInt64:
		*(*int64)(to) = int64(v)
	}
}

// setScalarPointer sets a pointer to a number or a bool.
func (d *decoding) setScalarPointer(f *field, v uint64, wire []byte, to unsafe.Pointer) {
	e, hash, again := d.memo.find(f.partType, wire)
	if e != nil {
		*(*unsafe.Pointer)(to) = e.value
		return
	}
	var at unsafe.Pointer
	switch f.scalar {
	case kindBool:
		at = unsafe.Pointer(new(bool))
	case kindInt32:
		at = unsafe.Pointer(new(int32))
	default:
		at = unsafe.Pointer(new(int64))
	}
	setScalar(f.scalar, v, at)
	*(*unsafe.Pointer)(to) = at
	if again {
		d.memo.add(hash, &memoEntry{of: f.partType, wire: string(wire), value: at})
	}
}
