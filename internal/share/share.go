// Package share makes read-only objects smaller by sharing their equal parts:
// strings, maps, slices and the targets of pointers, at every level. Pods of one
// ReplicaSet differ in their names, addresses and times; nearly everything else is
// equal.
//
// There are two ways. [Table.Decode] reads protobuf, for the types of Kubernetes'
// own modules. Before it decodes a part it looks up the part's encoding among those
// it has decoded before, and reuses the result. So a known part costs a hash and no
// garbage. It learns the types from their struct tags, decodes what Kubernetes
// writes, and leaves everything else to the type's own Unmarshal.
//
// [Table.Object] takes an object that has been decoded already. It works from the
// leaves up. Once all equal children of a part are the same memory, two equal parts
// are equal byte by byte, pointers included. So a part is compared by hashing its
// memory and never by walking it.
//
// A part is remembered the second time it is seen: a unique part, such as a pod's
// name or IP, costs one slot in a small table of hashes. A part is forgotten when it
// has not been seen again while enough others were added, so a table's own memory
// is bounded. (Weak pointers would forget sooner, but they must point into the heap,
// and not every decoder guarantees that for all it returns.)
package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"
)

// Table remembers parts of objects. It is safe for concurrent use. Use [New] to
// make one; the zero value is not usable.
type Table struct {
	memo *memo // for Decode

	seed maphash.Seed

	mu    sync.Mutex
	seen  []uint32 // recent hashes: their high bits, indexed by their low bits
	parts map[uint64]part
	older map[uint64]part // the previous generation of parts
}

// part is memory that objects may share.
type part struct {
	of   *shape
	size uintptr
	at   unsafe.Pointer
}

const (
	seenBits = 16
	maxParts = 1 << 15
)

// New returns an empty table.
func New() *Table {
	return &Table{memo: newMemo(), seed: maphash.MakeSeed(), parts: map[uint64]part{}}
}

// Forget forgets all parts. Objects keep what they share.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memo.reset()
	t.seen = nil
	t.parts, t.older = map[uint64]part{}, nil
}

// Object replaces the parts of the struct that o points to, but not the struct
// itself, with equal parts of earlier objects. The object stays the same by
// reflect.DeepEqual and in its encoding. The caller must be its only user until
// Object returns. Neither the object nor its parts may be modified afterwards.
func (t *Table) Object(o any) {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.walk(shapeOf(v.Type().Elem()), v.UnsafePointer())
}

// Len returns the number of parts that Object remembers.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parts) + len(t.older)
}

// MemoSize returns the number of parts that [Table.Decode] remembers, and the bytes
// of their encodings.
func (t *Table) MemoSize() (parts, bytes int) {
	t.memo.mu.Lock()
	defer t.memo.mu.Unlock()
	return t.memo.count, t.memo.bytes
}

// walk shares everything that the memory of shape s at p links to.
func (t *Table) walk(s *shape, p unsafe.Pointer) {
	for i := range s.links {
		l := &s.links[i]
		at := unsafe.Add(p, l.offset)
		switch l.kind {
		case linkString:
			t.shareString((*string)(at))
		case linkPointer:
			to := (*unsafe.Pointer)(at)
			if *to != nil {
				t.walk(l.elem, *to)
				*to = t.intern(l.elem, *to, l.elem.size)
			}
		case linkSlice:
			t.shareSlice(l, (*header)(at))
		case linkMap:
			l.shareMap(t, at)
		}
	}
}

// header is the memory layout of a slice.
type header struct {
	data     unsafe.Pointer
	len, cap int
}

func (t *Table) shareSlice(l *link, h *header) {
	if h.len == 0 {
		return
	}
	if len(l.elem.links) > 0 {
		for i := range h.len {
			t.walk(l.elem, unsafe.Add(h.data, uintptr(i)*l.elem.size))
		}
	}
	size := uintptr(h.len) * l.elem.size
	data := t.intern(l.elem, h.data, size)
	if data == h.data && h.cap > h.len {
		// Decoders grow slices by doubling. Drop the unused capacity.
		exact := reflect.MakeSlice(l.slice, h.len, h.len)
		reflect.Copy(exact, reflect.NewAt(l.slice, unsafe.Pointer(h)).Elem())
		data = exact.UnsafePointer()
	}
	*h = header{data, h.len, h.len}
}

func (t *Table) shareString(s *string) {
	if len(*s) == 0 {
		return
	}
	at := unsafe.Pointer(unsafe.StringData(*s))
	if to := t.intern(textShape, at, uintptr(len(*s))); to != at {
		*s = unsafe.String((*byte)(to), len(*s))
	}
}

// intern returns memory equal to the size bytes at p: that of a part seen before,
// or p itself.
func (t *Table) intern(of *shape, p unsafe.Pointer, size uintptr) unsafe.Pointer {
	if size == 0 || of.mutable {
		return p
	}
	memory := unsafe.Slice((*byte)(p), size)
	hash := maphash.Bytes(t.seed, memory) ^ of.salt
	if found, ok := t.lookup(hash); ok {
		if found.of == of && found.size == size && string(unsafe.Slice((*byte)(found.at), size)) == string(memory) {
			return found.at
		}
		return p // another part has the same hash
	}
	if t.seenBefore(hash) {
		t.add(hash, part{of: of, size: size, at: p})
	}
	return p
}

// lookup finds a part. One of the previous generation moves to the current one.
func (t *Table) lookup(hash uint64) (part, bool) {
	if p, ok := t.parts[hash]; ok {
		return p, true
	}
	p, ok := t.older[hash]
	if ok {
		t.add(hash, p)
	}
	return p, ok
}

// seenBefore reports whether a hash has been seen recently, and notes that it has.
func (t *Table) seenBefore(hash uint64) bool {
	if t.seen == nil { // many tables never need it
		t.seen = make([]uint32, 1<<seenBits)
	}
	slot := &t.seen[hash&(1<<seenBits-1)]
	tag := uint32(hash>>32) | 1
	if *slot == tag {
		return true
	}
	*slot = tag
	return false
}

func (t *Table) add(hash uint64, p part) {
	if len(t.parts) >= maxParts {
		t.parts, t.older = map[uint64]part{}, t.parts
	}
	t.parts[hash] = p
}
