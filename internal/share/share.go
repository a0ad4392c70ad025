// Package share makes objects that are read-only smaller by letting them have
// equal parts in common: strings, maps, slices and what pointers point at, at
// every level. Pods of one ReplicaSet differ in their names, addresses and
// times; nearly all the rest is the same.
//
// There are two ways. [Table.Decode] reads protobuf, for the types of Kubernetes'
// own modules: before it decodes a part it looks whether it has decoded the same
// bytes before, and takes what came of them. So a part that is known costs a
// hash, and no garbage. It knows of types what their struct tags tell, decodes
// what Kubernetes writes, and leaves everything else to the type's own Unmarshal.
//
// [Table.Object] takes an object that somebody else has decoded. It works from
// the leaves up. Once the parts of a part are the same memory wherever they are
// equal, two equal parts are equal byte by byte, pointers and all, so that a part
// is compared by hashing its memory and never by walking it.
//
// A part is remembered the second time it is seen: what is unique, a pod's name
// or its IP, costs one slot in a small table of hashes. What is remembered is
// forgotten when enough else has been remembered since it was last met, so the
// memory a table itself takes is bounded. (Weak pointers would forget sooner, but
// may only point into the heap, and nobody can say of a decoder of somebody
// else's that all it returns is there.)
package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"unsafe"
)

// Table remembers parts. It is safe for concurrent use. The zero value is not
// usable, see [New].
type Table struct {
	memo *memo // for Decode

	seed maphash.Seed

	mu    sync.Mutex
	seen  []uint32 // by the low bits of a hash: the high bits of the last one there
	parts map[uint64]part
	older map[uint64]part // what was in parts before that was full
}

// part is something that objects may have in common.
type part struct {
	of   *shape
	size uintptr
	at   unsafe.Pointer
}

const (
	seenBits = 16
	full     = 1 << 15
)

// New returns an empty table.
func New() *Table {
	return &Table{memo: newMemo(), seed: maphash.MakeSeed(), parts: map[uint64]part{}}
}

// Forget forgets everything. Objects keep what they have in common.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.memo.forget()
	t.seen = nil
	t.parts, t.older = map[uint64]part{}, nil
}

// Object makes the parts of the struct that o points at, not the struct itself,
// common with those of objects that were here before. The object stays equal to
// what it was, by reflect.DeepEqual and in all its bytes on the wire. It must
// not be in use by anybody else yet, and must not be modified afterwards, nor
// may any of its parts.
func (t *Table) Object(o any) {
	v := reflect.ValueOf(o)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.walk(shapeOf(v.Type().Elem()), v.UnsafePointer())
}

// Len is the number of parts that are remembered.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.parts) + len(t.older)
}

// walk shares what the memory of a shape at p points at.
func (t *Table) walk(s *shape, p unsafe.Pointer) {
	for i := range s.links {
		l := &s.links[i]
		at := unsafe.Add(p, l.offset)
		switch l.kind {
		case toString:
			t.shareString((*string)(at))
		case toPointer:
			to := (*unsafe.Pointer)(at)
			if *to != nil {
				t.walk(l.elem, *to)
				*to = t.common(l.elem, *to, l.elem.size)
			}
		case toSlice:
			t.shareSlice(l, (*header)(at))
		case toMap:
			l.shareMap(t, at)
		}
	}
}

// header is a slice as it is in memory.
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
	data := t.common(l.elem, h.data, size)
	if data == h.data && h.cap > h.len {
		// Decoding grows slices by doubling; what nobody will use is given back.
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
	if to := t.common(textShape, at, uintptr(len(*s))); to != at {
		*s = unsafe.String((*byte)(to), len(*s))
	}
}

// common returns memory that holds the same as the size bytes at p: those of a
// part seen before, or p itself.
func (t *Table) common(of *shape, p unsafe.Pointer, size uintptr) unsafe.Pointer {
	if size == 0 || of.restless {
		return p
	}
	memory := unsafe.Slice((*byte)(p), size)
	hash := maphash.Bytes(t.seed, memory) ^ of.salt
	if known, ok := t.known(hash); ok {
		if known.of == of && known.size == size && string(unsafe.Slice((*byte)(known.at), size)) == string(memory) {
			return known.at
		}
		return p // another part has the same hash
	}
	if t.again(hash) {
		t.remember(hash, part{of: of, size: size, at: p})
	}
	return p
}

// known finds a part, and remembers it anew if it was about to be forgotten.
func (t *Table) known(hash uint64) (part, bool) {
	if p, ok := t.parts[hash]; ok {
		return p, true
	}
	p, ok := t.older[hash]
	if ok {
		t.remember(hash, p)
	}
	return p, ok
}

// again reports whether a hash has been seen lately.
func (t *Table) again(hash uint64) bool {
	if t.seen == nil { // many tables never come here
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

func (t *Table) remember(hash uint64, p part) {
	if len(t.parts) >= full {
		t.parts, t.older = map[uint64]part{}, t.parts
	}
	t.parts[hash] = p
}

// Remembered is how many parts [Table.Decode] has at hand, and the bytes of their
// encodings.
func (t *Table) Remembered() (parts, bytes int) {
	t.memo.mu.Lock()
	defer t.memo.mu.Unlock()
	return t.memo.count, t.memo.bytes
}
