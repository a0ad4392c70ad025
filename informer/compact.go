package informer

import (
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/tidings-io/tidings/internal/codec"
)

// Compact keeps objects as the bytes they came in, compressed with a dictionary
// made of some of them, and decodes an object each time it is read: a pod then
// takes less than a kilobyte, keys and indexes included, a tenth of what it takes
// decoded, and a Get or an event costs tens of microseconds instead of a fraction
// of one. What is read is equal to what it would be otherwise. An object that
// somebody still holds, a handler for one, is not decoded anew for the next
// reader, so that any number of handlers together decode it once.
//
// Label selectors are answered without decoding what does not match. Indexes
// added with [Informer.AddIndex] decode an object when it changes. With
// [Transform], objects are decoded and encoded again as they arrive.
func Compact() Option {
	return func(o *options) error { o.compact = true; return nil }
}

// newCompact returns an engine whose store holds encodings.
func newCompact[T Object](o *options, transform func(T) (T, error), keep func(T) bool) engine[T] {
	pack := codec.NewPacker()
	var current atomic.Pointer[codec.Compact[T]]
	decoded := newMemo(func(r *codec.Raw) T { return current.Load().Expand(r) })
	e := newStored(o, decoded.get)
	e.codec = func(c codec.Codec[T]) codec.Codec[*codec.Raw] {
		compact := codec.NewCompact(c, o.codec, transform, pack)
		current.Store(compact)
		return compact
	}
	if keep != nil {
		e.keep = func(r *codec.Raw) bool { return keep(decoded.get(r)) }
	}
	return e
}

// memo remembers which objects encodings have lately been decoded to, for as
// long as somebody uses those.
type memo[T Object] struct {
	decode func(*codec.Raw) T
	slots  [256]struct {
		sync.Mutex
		of     *codec.Raw
		object weak.Pointer[byte] // T, which is a pointer
	}
}

func newMemo[T Object](decode func(*codec.Raw) T) *memo[T] { return &memo[T]{decode: decode} }

// get returns the object of an encoding, nil of nil.
func (m *memo[T]) get(of *codec.Raw) (object T) {
	if of == nil {
		return object
	}
	// By address: two encodings of one object are of two versions of it.
	at := uintptr(unsafe.Pointer(of))
	slot := &m.slots[(at>>5^at>>13)%uintptr(len(m.slots))]
	slot.Lock()
	defer slot.Unlock()
	if slot.of == of {
		if p := slot.object.Value(); p != nil {
			return *(*T)(unsafe.Pointer(&p))
		}
	}
	object = m.decode(of)
	slot.of, slot.object = of, weak.Make(*(**byte)(unsafe.Pointer(&object)))
	return object
}
