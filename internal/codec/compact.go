package codec

import (
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/internal/object"
)

// Compact is a codec that keeps the encodings of another codec's objects as [*Raw].
// They take a fifth to a twentieth of the memory, but every read decodes an object.
type Compact[T any] struct {
	inner       Codec[T]
	opts        Options
	transformed Codec[T] // nil: nothing is transformed
	pack        *Packer
	valid       func(Format, []byte) bool
}

// NewCompact returns a codec that keeps the objects of inner, which [For] made with
// the same options. If transform is not nil, it keeps what transform returns for
// them. Calls of transform are never concurrent.
func NewCompact[T any](inner Codec[T], opts Options, transform func(T) (T, error), pack *Packer) *Compact[T] {
	c := &Compact[T]{inner: inner, opts: opts, pack: pack, valid: validator[T]()}
	if transform != nil {
		c.transformed = Transformed(inner, transform)
	}
	return c
}

// Accept implements [Codec].
func (c *Compact[T]) Accept(list bool) string { return c.inner.Accept(list) }

// Decode implements [Codec]. It fails for encodings that the inner codec cannot
// decode, so [Compact.Expand] never does.
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
	} else if !c.valid(format, content) {
		if _, err := c.inner.Decode(format, content); err != nil {
			return nil, err
		}
	}
	id, hashes, err := identityOf(format, content, c.opts.Owners)
	if err != nil {
		return nil, err
	}
	return c.pack.raw(id, format, content, hashes)
}

// Expand decodes an object that Decode returned.
func (c *Compact[T]) Expand(r *Raw) T {
	var o T
	var err error
	r.visit(func(format Format, content []byte) { o, err = c.inner.Decode(format, content) })
	if err != nil {
		panic(fmt.Sprintf("codec: %s/%s was checked and cannot be decoded: %v", r.GetNamespace(), r.GetName(), err))
	}
	return o
}

// identityOf returns the identity in the encoding of a valid object and, if owners asks
// for them, the hashes of its owners' uids.
func identityOf(format Format, content []byte, owners bool) (id object.Identity, hashes []uint64, err error) {
	if format == Protobuf {
		id = peekProtobuf(content)
	} else {
		skim := skimmer{json: content, owners: owners}
		if id, _, ok := skim.whole(); ok {
			return id, skim.hashes, nil
		}
		id, err = identityOfJSON(content, func(gjson.Result, gjson.Result) {})
	}
	if owners && err == nil {
		hashes = hashOwners(format, content)
	}
	return id, hashes, err
}

// encode encodes an object, in the given format if its type supports it.
func encode(format Format, o any) (Format, []byte, error) {
	if m, ok := o.(interface{ Marshal() ([]byte, error) }); ok && format == Protobuf {
		content, err := m.Marshal()
		return Protobuf, content, err
	}
	content, err := json.Marshal(o)
	return JSON, content, err
}
