// Package codec decodes one object into the representation that a store keeps: a
// typed object, an unstructured one, its metadata alone, or its encoding. The engine
// is the same for all of them.
package codec

import (
	"bytes"
	"fmt"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"github.com/tidings-io/tidings/internal/share"
)

// Format is the encoding of an object.
type Format uint8

// The formats an API server speaks.
const (
	JSON Format = iota
	Protobuf
)

// Codec makes objects of one resource. It is safe for concurrent use.
type Codec[T any] interface {
	// Accept returns the Accept header for lists, or for watches and single
	// objects.
	Accept(list bool) string
	// Decode decodes an object. raw is only valid during the call. The object has
	// its kind and apiVersion set, even if raw has none.
	Decode(format Format, raw []byte) (T, error)
}

// Options of a codec. The zero value is usable.
type Options struct {
	// KeepManagedFields keeps metadata.managedFields, the record of which manager
	// set which field: often half of an object, and of no use to most readers.
	KeepManagedFields bool
	// Pack, if not nil, compresses [Raw] objects.
	Pack *Packer
	// Owners keeps with each [Raw] object the hashes of its owners' uids, see
	// [Raw.AppendOwners].
	Owners bool
}

const (
	acceptJSON     = "application/json"
	acceptProtobuf = "application/vnd.kubernetes.protobuf"
)

// For returns the codec that keeps objects of the given kind as T:
// *unstructured.Unstructured, *metav1.PartialObjectMetadata, [*Raw], or a
// pointer to the Go type of the kind.
func For[T any](gvk schema.GroupVersionKind, opts Options) (Codec[T], error) {
	var codec any
	switch any(*new(T)).(type) {
	case *unstructured.Unstructured:
		codec = dynamic{gvk, opts}
	case *metav1.PartialObjectMetadata:
		codec = metadata{gvk, opts}
	case *Raw:
		codec = raw{gvk, opts.Pack, opts.Owners}
	default:
		t := reflect.TypeFor[T]()
		if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || !t.Implements(reflect.TypeFor[runtime.Object]()) || !t.Implements(reflect.TypeFor[metav1.Object]()) {
			return nil, fmt.Errorf("objects cannot be kept as %s: it must be a pointer to the Go type of a Kubernetes kind, *unstructured.Unstructured or *metav1.PartialObjectMetadata", t)
		}
		c := typed[T]{gvk: gvk, apiVersion: gvk.GroupVersion().String(), opts: opts, elem: t.Elem(), protobuf: t.Implements(reflect.TypeFor[unmarshaler]())}
		// Without a name, all objects would be one.
		if o, err := c.Decode(JSON, []byte(`{"metadata":{"name":"a"}}`)); err == nil && any(o).(metav1.Object).GetName() != "a" {
			return nil, fmt.Errorf("objects cannot be kept as %s: it has no field for their metadata; embed metav1.ObjectMeta with the tag `json:\"metadata\"`", t)
		}
		codec = c
	}
	return codec.(Codec[T]), nil
}

// unmarshaler is implemented by types that can be decoded from protobuf.
type unmarshaler interface{ Unmarshal([]byte) error }

// apiObject is implemented by every representation but Raw.
type apiObject interface {
	metav1.Object
	runtime.Object
}

// finish sets kind and apiVersion and drops what the options do not keep.
func finish(o apiObject, gvk schema.GroupVersionKind, opts Options) {
	o.GetObjectKind().SetGroupVersionKind(gvk)
	if !opts.KeepManagedFields {
		o.SetManagedFields(nil)
	}
}

// Transformed returns a codec that passes decoded objects through transform, which
// may modify them. An error of transform is an error of Decode. Calls of transform
// are never concurrent.
func Transformed[T any](c Codec[T], transform func(T) (T, error)) Codec[T] {
	return &transformed[T]{Codec: c, transform: transform}
}

type transformed[T any] struct {
	Codec[T]
	mu        sync.Mutex
	transform func(T) (T, error)
}

func (c *transformed[T]) Decode(format Format, raw []byte) (T, error) {
	o, err := c.Codec.Decode(format, raw)
	if err != nil {
		return o, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transform(o)
}

// Shared returns a codec whose objects share equal parts with earlier ones, if they
// are of a Go type. They must not be modified. Objects of built-in kinds are decoded
// by the table itself, unless they are transformed: see [share.Table.Decode].
func Shared[T any](c Codec[T], table *share.Table) Codec[T] {
	switch any(*new(T)).(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata, *Raw:
		return c
	}
	out := shared[T]{Codec: c, table: table}
	out.typed, _ = c.(typed[T])
	return out
}

type shared[T any] struct {
	Codec[T]
	typed typed[T] // if Codec is one: its objects are not modified before they are shared
	table *share.Table
}

func (c shared[T]) Decode(format Format, raw []byte) (T, error) {
	if c.typed.protobuf && format == Protobuf {
		out := reflect.New(c.typed.elem).Interface()
		if c.table.Decode(raw, out, !c.typed.opts.KeepManagedFields) {
			c.typed.finish(out)
			return out.(T), nil
		}
	}
	o, err := c.Codec.Decode(format, raw)
	if err == nil {
		c.table.Object(o)
	}
	return o, err
}

// typed decodes objects to the Go type of their kind.
type typed[T any] struct {
	gvk        schema.GroupVersionKind
	apiVersion string
	opts       Options
	elem       reflect.Type
	protobuf   bool
}

func (c typed[T]) Accept(bool) string {
	if c.protobuf {
		return acceptProtobuf + "," + acceptJSON
	}
	return acceptJSON
}

func (c typed[T]) Decode(format Format, raw []byte) (T, error) {
	out := reflect.New(c.elem).Interface()
	if err := c.opts.decode(format, raw, out); err != nil {
		var none T
		return none, err
	}
	c.finish(out)
	return out.(T), nil
}

func (c typed[T]) finish(out any) {
	if meta, ok := out.(apiObject).GetObjectKind().(*metav1.TypeMeta); ok {
		meta.Kind, meta.APIVersion = c.gvk.Kind, c.apiVersion // without allocating a string
		if !c.opts.KeepManagedFields {
			out.(apiObject).SetManagedFields(nil)
		}
		return
	}
	finish(out.(apiObject), c.gvk, c.opts)
}

// dynamic decodes objects of any kind to nested maps.
type dynamic struct {
	gvk  schema.GroupVersionKind
	opts Options
}

func (c dynamic) Accept(bool) string { return acceptJSON }

func (c dynamic) Decode(format Format, raw []byte) (*unstructured.Unstructured, error) {
	if format != JSON {
		return nil, fmt.Errorf("unstructured objects are read from JSON only")
	}
	out := &unstructured.Unstructured{}
	if err := c.opts.decode(format, raw, &out.Object); err != nil {
		return nil, err
	}
	if out.Object == nil {
		return nil, fmt.Errorf("not a JSON object: null")
	}
	finish(out, c.gvk, c.opts)
	return out, nil
}

// metadata decodes only the metadata of objects, and requests no more.
type metadata struct {
	gvk  schema.GroupVersionKind
	opts Options
}

func (c metadata) Accept(list bool) string {
	as := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	if list {
		as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	// A server that cannot send metadata alone sends whole objects.
	return acceptProtobuf + as + "," + acceptJSON + as + "," + acceptJSON
}

func (c metadata) Decode(format Format, raw []byte) (*metav1.PartialObjectMetadata, error) {
	out := &metav1.PartialObjectMetadata{}
	if err := c.opts.decode(format, raw, out); err != nil {
		return nil, err
	}
	finish(out, c.gvk, c.opts)
	return out, nil
}

// decode decodes an object without what the options drop.
func (o Options) decode(format Format, raw []byte, into any) error {
	if !o.KeepManagedFields {
		raw = withoutManagedFields(nil, format, raw)
	}
	switch format {
	case Protobuf:
		m, ok := into.(unmarshaler)
		if !ok {
			return fmt.Errorf("%T cannot be read from protobuf", into)
		}
		return m.Unmarshal(raw)
	default:
		if err := json.UnmarshalCaseSensitivePreserveInts(raw, into); err != nil {
			return err
		}
		// encoding/json accepts null for any type and does nothing.
		if bytes.TrimSpace(raw)[0] != '{' {
			return fmt.Errorf("not a JSON object: %.20q", raw)
		}
		return nil
	}
}
