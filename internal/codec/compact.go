package codec

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"
)

// Compact keeps as [*Raw] the objects that another codec makes: a fifth to a
// twentieth of the memory, for the time it takes to decode an object each time
// it is read.
type Compact[T any] struct {
	inner       Codec[T]
	opts        Options
	transformed Codec[T] // nil: nothing is transformed
	pack        *Packer
	check       func(Format, []byte) bool
}

// NewCompact returns a codec that keeps what inner, made by [For] with the same
// options, would make, and transform, if it is not nil, of that. Transform is
// never called by two goroutines at once.
func NewCompact[T any](inner Codec[T], opts Options, transform func(T) (T, error), pack *Packer) *Compact[T] {
	c := &Compact[T]{inner: inner, opts: opts, pack: pack, check: checker[T]()}
	if transform != nil {
		c.transformed = Transformed(inner, transform)
	}
	return c
}

// Accept implements [Codec].
func (c *Compact[T]) Accept(list bool) string { return c.inner.Accept(list) }

// Decode implements [Codec]. What the inner codec could not decode is refused
// now, not when it is read.
func (c *Compact[T]) Decode(format Format, content []byte) (*Raw, error) {
	if !c.opts.KeepManagedFields {
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		content = withoutManagedFields((*buf)[:0], format, content)
	}
	if c.transformed != nil {
		o, err := c.transformed.Decode(format, content)
		if err != nil {
			return nil, err
		}
		if format, content, err = encode(format, o); err != nil {
			return nil, err
		}
	} else if !c.check(format, content) {
		if _, err := c.inner.Decode(format, content); err != nil {
			return nil, err
		}
	}
	id, err := identityOf(format, content)
	if err != nil {
		return nil, err
	}
	return c.pack.raw(id, format, content)
}

// Expand makes the object of what Decode kept.
func (c *Compact[T]) Expand(r *Raw) T {
	var o T
	var err error
	r.look(func(format Format, content []byte) { o, err = c.inner.Decode(format, content) })
	if err != nil {
		panic(fmt.Sprintf("codec: %s/%s was checked and cannot be decoded: %v", r.GetNamespace(), r.GetName(), err))
	}
	return o
}

// identityOf reads the identity off an object that can be decoded.
func identityOf(format Format, content []byte) (Identity, error) {
	if format == Protobuf {
		return peekProtobuf(content), nil
	}
	return identityOfJSON(content, func(gjson.Result, gjson.Result) {})
}

// encode writes an object that was read from a format, in that format.
func encode(format Format, o any) (Format, []byte, error) {
	if m, ok := o.(interface{ Marshal() ([]byte, error) }); ok && format == Protobuf {
		content, err := m.Marshal()
		return Protobuf, content, err
	}
	content, err := json.Marshal(o)
	return JSON, content, err
}
