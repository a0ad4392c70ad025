package codec_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	protobufserializer "k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/share"
)

// kind is what the property below needs of a Go type.
type kind struct {
	gvk    schema.GroupVersionKind
	create func() object
	// codecs decode to the ways to keep objects of the type: as they are, with shared
	// parts, and compact.
	codecs func(*testing.T, codec.Options, *share.Table, *codec.Packer) map[string]func(codec.Format, []byte) (object, error)
}

// object is what is compared.
type object interface {
	metav1.Object
	runtime.Object
}

func kindOf[T object]() kind {
	create := func() object { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(object) }
	kinds, _, err := scheme.Scheme.ObjectKinds(create())
	if err != nil {
		panic(err)
	}
	return kindAs[T](kinds[0], create)
}

// kindAs keeps objects of a kind as T.
func kindAs[T object](gvk schema.GroupVersionKind, create func() object) kind {
	return kind{gvk, create, func(t *testing.T, opts codec.Options, table *share.Table, pack *codec.Packer) map[string]func(codec.Format, []byte) (object, error) {
		plain, err := codec.For[T](gvk, opts)
		if err != nil {
			t.Fatal(err)
		}
		shared := codec.Shared(plain, table)
		compact := codec.NewCompact(plain, opts, nil, pack)
		return map[string]func(codec.Format, []byte) (object, error){
			"plain":  func(f codec.Format, raw []byte) (object, error) { return plain.Decode(f, raw) },
			"shared": func(f codec.Format, raw []byte) (object, error) { return shared.Decode(f, raw) },
			"compact": func(f codec.Format, raw []byte) (object, error) {
				r, err := compact.Decode(f, raw)
				if err != nil {
					return nil, err
				}
				return compact.Expand(r), nil
			},
		}
	}}
}

// random makes objects of any kind. Fields whose random values would not survive an
// encoding get values that do.
func random(seed int64) *randfill.Filler {
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{
			func(q *resource.Quantity, c randfill.Continue) {
				*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
			},
			func(r *runtime.RawExtension, c randfill.Continue) {
				r.Raw, _ = json.Marshal(map[string]string{"random": c.String(0)})
			},
		}
	}), rand.NewSource(seed), serializer.NewCodecFactory(scheme.Scheme))
}

// pair is an object as client-go decodes it and as it is kept here.
type pair struct {
	what      string
	want, got object
}

func (p pair) check(t *testing.T, when string) {
	t.Helper()
	if !reflect.DeepEqual(p.want, p.got) {
		t.Fatalf("%s, %s: it is not what client-go makes of it:\n%s", p.what, when, diff.Diff(p.want, p.got))
	}
}

// TestEveryBuiltInKindReadsLikeClientGo makes random objects of every kind that client-go
// knows. It compares what client-go's decoders return for their encodings with what a
// store keeps, including nil and empty, in protobuf and JSON. All objects use one share
// table and one packer, and are compared again after the last one.
func TestEveryBuiltInKindReadsLikeClientGo(t *testing.T) {
	listed := map[reflect.Type]bool{}
	for _, k := range builtIn {
		listed[reflect.TypeOf(k.create()).Elem()] = true
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.New(typ).Interface().(object); ok && gvk.Version != runtime.APIVersionInternal && !listed[typ] {
			t.Errorf("%s, of type %s, is a kind that builtIn lacks", gvk, typ)
		}
	}

	const each = 3
	table, pack := share.New(), codec.NewPacker()
	asJSON := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, jsonserializer.SerializerOptions{})
	asProtobuf := protobufserializer.NewSerializer(scheme.Scheme, scheme.Scheme)
	var pairs []pair
	for i, k := range builtIn {
		// The seed is the kind's, so failures are reproducible.
		fill := random(int64(i))
		kept := map[bool]map[string]func(codec.Format, []byte) (object, error){}
		for _, keep := range []bool{false, true} {
			kept[keep] = k.codecs(t, codec.Options{KeepManagedFields: keep}, table, pack)
		}
		for range each {
			o := k.create()
			fill.Fill(o)
			o.GetObjectKind().SetGroupVersionKind(k.gvk)
			for _, name := range []string{"one", "two", "three"} { // which have all but their names in common
				o.SetName(name)
				for format, s := range map[codec.Format]runtime.Serializer{codec.JSON: asJSON, codec.Protobuf: asProtobuf} {
					wire := encodeWith(t, s, o)
					for keep, codecs := range kept {
						decoded, _, err := s.Decode(wire, nil, nil)
						if err != nil {
							t.Fatalf("%s: %v", k.gvk, err)
						}
						want := decoded.(object)
						want.GetObjectKind().SetGroupVersionKind(k.gvk) // which lists lack, and we promise
						if !keep {
							want.SetManagedFields(nil)
						}
						for way, decode := range codecs {
							input := withoutEnvelope(t, format, wire)
							got, err := decode(format, input)
							for i := range input {
								input[i] = 'x' // it is only valid during the call
							}
							if err != nil {
								t.Fatalf("%s: %v", k.gvk, err)
							}
							p := pair{fmt.Sprintf("%s, %s, format %d, managedFields kept: %v", k.gvk, way, format, keep), want, got}
							p.check(t, "decoded")
							pairs = append(pairs, p)
						}
					}
				}
			}
		}
	}
	for _, p := range pairs {
		p.check(t, "in the end")
	}
	if len(pairs) < 1000 || table.Len() == 0 {
		t.Errorf("%d objects were compared, and %d parts are shared", len(pairs), table.Len())
	}
}

func encodeWith(t *testing.T, s runtime.Serializer, o runtime.Object) []byte {
	t.Helper()
	var wire bytes.Buffer
	if err := s.Encode(o, &wire); err != nil {
		t.Fatalf("%s: %v", o.GetObjectKind().GroupVersionKind(), err)
	}
	return wire.Bytes()
}

// withoutEnvelope returns a copy of the encoding as in a list.
func withoutEnvelope(t *testing.T, format codec.Format, wire []byte) []byte {
	t.Helper()
	if format == codec.JSON {
		return bytes.Clone(wire)
	}
	var envelope runtime.Unknown
	if err := envelope.Unmarshal(wire[4:]); err != nil {
		t.Fatal(err)
	}
	return envelope.Raw
}

// TestEveryBuiltInKindWithoutItsType is the same for objects that are kept
// unstructured, or as metadata alone.
func TestEveryBuiltInKindWithoutItsType(t *testing.T) {
	table, pack := share.New(), codec.NewPacker()
	for i, builtIn := range builtIn {
		fill := random(int64(1000 + i))
		for _, k := range []kind{
			kindAs[*unstructured.Unstructured](builtIn.gvk, func() object { return &unstructured.Unstructured{} }),
			kindAs[*metav1.PartialObjectMetadata](builtIn.gvk, func() object { return &metav1.PartialObjectMetadata{} }),
		} {
			codecs := k.codecs(t, codec.Options{KeepManagedFields: true}, table, pack)
			for range 3 {
				o := builtIn.create()
				fill.Fill(o)
				o.SetName("name")
				o.GetObjectKind().SetGroupVersionKind(k.gvk)
				raw, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				want := k.create()
				if u, ok := want.(*unstructured.Unstructured); ok {
					err = u.UnmarshalJSON(raw)
				} else {
					err = json.Unmarshal(raw, want)
				}
				if err != nil {
					t.Fatal(err)
				}
				for name, decode := range codecs {
					got, err := decode(codec.JSON, raw)
					if err != nil {
						t.Fatalf("%s: %v", k.gvk, err)
					}
					pair{k.gvk.String() + ", " + name, want, got}.check(t, "decoded")
				}
			}
		}
	}
}
