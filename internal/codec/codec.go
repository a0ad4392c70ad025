// Package codec turns the bytes of one object on the wire into what a store
// keeps: a typed object, an unstructured one, its metadata alone, or the bytes
// as they are. It is the seam between the engine, which is the same for all of
// them, and the representation, which is not.
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

// Format is how bytes on the wire are encoded.
type Format uint8

// The formats an API server speaks.
const (
	JSON Format = iota
	Protobuf
)

// Codec makes objects of one resource. It is safe for concurrent use.
type Codec[T any] interface {
	// Accept is the value of the Accept header of requests whose answers this
	// codec reads: of lists, or else of watches and single objects.
	Accept(list bool) string
	// Decode makes an object of its encoding, which is only valid during the
	// call. The object carries its kind and apiVersion whether or not the
	// bytes do.
	Decode(format Format, raw []byte) (T, error)
}

// Options say what to keep of an object. The zero value is usable.
type Options struct {
	// KeepManagedFields keeps metadata.managedFields, the record of who set
	// which field: often half of an object, and of no use to its readers.
	KeepManagedFields bool
	// Pack, if not nil, compresses [Raw] objects.
	Pack *Packer
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
		codec = raw{gvk, opts.Pack}
	default:
		t := reflect.TypeFor[T]()
		if t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || !t.Implements(reflect.TypeFor[runtime.Object]()) || !t.Implements(reflect.TypeFor[metav1.Object]()) {
			return nil, fmt.Errorf("objects cannot be kept as %s: it must be a pointer to the Go type of a Kubernetes kind, *unstructured.Unstructured or *metav1.PartialObjectMetadata", t)
		}
		codec = typed[T]{gvk: gvk, apiVersion: gvk.GroupVersion().String(), opts: opts, elem: t.Elem(), protobuf: t.Implements(reflect.TypeFor[unmarshaler]())}
	}
	return codec.(Codec[T]), nil
}

// unmarshaler is what the built-in types have for protobuf.
type unmarshaler interface{ Unmarshal([]byte) error }

// object is what every representation but Raw has in common.
type object interface {
	metav1.Object
	runtime.Object
}

// finish makes o what the options and the promise of kind and apiVersion ask.
func finish(o object, gvk schema.GroupVersionKind, opts Options) {
	o.GetObjectKind().SetGroupVersionKind(gvk)
	if !opts.KeepManagedFields {
		o.SetManagedFields(nil)
	}
}

// Transformed is a codec whose objects are changed once they are made. The
// object is transform's own; an error is one of decoding. Transform is never
// called by two goroutines at once.
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

// Shared is a codec whose objects, if they are of a Go type, have equal parts in
// common with those made before. They must not be modified any more. Built-in kinds
// are decoded by the table itself, unless they are transformed first: see
// [share.Table.Decode].
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
	typed typed[T] // if Codec is one: nothing changes its objects before they are shared
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

// typed keeps objects as the Go type of their kind.
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
	if meta, ok := out.(object).GetObjectKind().(*metav1.TypeMeta); ok {
		meta.Kind, meta.APIVersion = c.gvk.Kind, c.apiVersion // which makes no new string
		if !c.opts.KeepManagedFields {
			out.(object).SetManagedFields(nil)
		}
		return
	}
	finish(out.(object), c.gvk, c.opts)
}

// dynamic keeps objects of any kind as nested maps.
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

// metadata keeps only the metadata of objects, and asks the server for no more.
type metadata struct {
	gvk  schema.GroupVersionKind
	opts Options
}

func (c metadata) Accept(list bool) string {
	as := ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	if list {
		as = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	}
	// A server that cannot give metadata alone gives whole objects.
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

// decode reads an object but for what the options drop.
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
		// Go reads null into anything and leaves it as it was.
		if bytes.TrimSpace(raw)[0] != '{' {
			return fmt.Errorf("not a JSON object: %.20q", raw)
		}
		return nil
	}
}
