package informer

import (
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"github.com/tidings-io/tidings/internal/codec"
)

// newCompact returns an engine whose store holds encodings, see [Compact].
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

// memo caches the objects that encodings have lately been decoded to, for as long
// as a caller uses them.
type memo[T Object] struct {
	decode func(*codec.Raw) T
	slots  [256]struct {
		sync.Mutex
		of     *codec.Raw
		object weak.Pointer[byte] // T, which is a pointer
	}
}

func newMemo[T Object](decode func(*codec.Raw) T) *memo[T] { return &memo[T]{decode: decode} }

// get returns the object of an encoding, nil for nil.
func (m *memo[T]) get(of *codec.Raw) (object T) {
	if of == nil {
		return object
	}
	// By address: each version of an object has an encoding of its own.
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
