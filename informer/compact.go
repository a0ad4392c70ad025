package informer

import (
	"cmp"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/share"
)

// jsonPage is the size of the pages of lists in JSON. As a WatchList stream, which it
// encodes and compresses object by object or not at all, JSON costs an API server twice
// the CPU of a list, and in pages of 500 half as much again. An API server before 1.33
// holds a page in memory as a whole.
const jsonPage = 10_000

// codecsFor returns the codecs of an informer and, if its store is to hold encodings
// of objects of type T, see [Compact], how to decode them.
func codecsFor[T Object](o *options, transform func(T) (T, error)) (codecs, func(Object) T) {
	_, raw := any(*new(T)).(*codec.Raw)
	if raw {
		o.plainLists, o.pageSize = true, cmp.Or(o.pageSize, jsonPage)
	}
	switch {
	case o.compact && raw: // the objects of the program's server, which are encodings
		o.codec.Pack = codec.NewPacker()
	case o.compact:
		pack := codec.NewPacker()
		var current atomic.Pointer[codec.Compact[T]]
		return func(kind schema.GroupVersionKind) (codec.Codec[Object], error) {
			c, err := codec.For[T](kind, o.codec)
			if err != nil {
				return nil, err
			}
			compact := codec.NewCompact(c, o.codec, transform, pack)
			current.Store(compact)
			return objects[*codec.Raw]{compact}, nil
		}, newMemo(func(r *codec.Raw) T { return current.Load().Expand(r) }).get
	}
	if !o.unshared {
		o.shared = share.New()
	}
	return func(kind schema.GroupVersionKind) (codec.Codec[Object], error) {
		c, err := codec.For[T](kind, o.codec)
		if err != nil {
			return nil, err
		}
		if transform != nil {
			c = codec.Transformed(c, transform)
		}
		if o.shared != nil {
			c = codec.Shared(c, o.shared)
		}
		return objects[T]{c}, nil
	}, nil
}

// objects is a codec of T as one of [Object].
type objects[T Object] struct{ codec.Codec[T] }

func (c objects[T]) Decode(format codec.Format, content []byte) (Object, error) {
	return c.Codec.Decode(format, content)
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
func (m *memo[T]) get(held Object) (object T) {
	of, _ := held.(*codec.Raw)
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
