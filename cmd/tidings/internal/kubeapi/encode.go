package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// encoding returns the encoding of an object in a form: the JSON with kind and
// apiVersion, or the protobuf without its envelope. It is shared and must not be
// modified.
func (h *Handler) encoding(o *read.Object, k kind, f form) ([]byte, error) {
	if f.media != asProtobuf && f.content == whole {
		return o.JSON(), nil
	}
	return h.cache.bytes(encodingKey{o, f.variant(k)}, func() (out []byte, err error) {
		o.VisitJSON(func(content []byte) { out, err = f.encode(content, k) })
		return out, err
	})
}

// variant identifies the encoding of an object of a kind in this form. YAML is made from
// the JSON.
func (f form) variant(k kind) variant {
	v := variant{content: f.content, custom: k.custom}
	if f.media == asProtobuf {
		v.media = asProtobuf
	}
	if f.content == metadata {
		v.version = f.convert.Version
	}
	return v
}

// encode encodes an object from its JSON, which it does not retain.
func (f form) encode(content []byte, k kind) ([]byte, error) {
	switch {
	case f.content == whole:
		return protobufOf(content, k.gvk)
	case f.media == asProtobuf:
		var m metav1.PartialObjectMetadata
		if err := metadataOf(content, &m.ObjectMeta); err != nil {
			return nil, err
		}
		return m.Marshal()
	}
	return metadataJSON(content, k, f.group())
}

// protobufOf returns the protobuf of an object, by way of its Go type.
func protobufOf(content []byte, gvk schema.GroupVersionKind) ([]byte, error) {
	o, err := scheme.Scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(content, o); err != nil {
		return nil, fmt.Errorf("decode a %s: %w", gvk.Kind, err)
	}
	return protobufOfTyped(o)
}

func protobufOfTyped(o runtime.Object) ([]byte, error) {
	m, ok := o.(interface{ Marshal() ([]byte, error) })
	if !ok {
		return nil, fmt.Errorf("%T has no protobuf", o)
	}
	return m.Marshal()
}

// metadataOf decodes the metadata of an object.
func metadataOf(content []byte, into *metav1.ObjectMeta) error {
	found := gjson.GetBytes(content, "metadata")
	if !found.IsObject() {
		return nil
	}
	return kjson.UnmarshalCaseSensitivePreserveInts([]byte(found.Raw), into)
}

// metadataJSON returns the JSON of an object's PartialObjectMetadata.
func metadataJSON(content []byte, k kind, group string) ([]byte, error) {
	out := append(typeMeta("PartialObjectMetadata", group), `,"metadata":`...)
	if !k.custom {
		if found := gjson.GetBytes(content, "metadata"); found.IsObject() { // kube-apiserver has written it from the same Go type
			return append(append(out, found.Raw...), '}'), nil
		}
	}
	var m metav1.ObjectMeta
	if err := metadataOf(content, &m); err != nil {
		return nil, err
	}
	return append(append(out, marshal(m)...), '}'), nil
}

// partial is the form of the objects in a Table that includes metadata only.
func (f form) partial() form { return form{content: metadata, convert: f.convert} }

// object returns the kind and apiVersion of a single object in the form.
func (f form) object(k kind) (kind, apiVersion string) {
	if f.content == metadata {
		return "PartialObjectMetadata", f.group()
	}
	return k.gvk.Kind, k.gvk.GroupVersion().String()
}

// envelope wraps protobuf in the envelope with its type: four bytes, then a
// runtime.Unknown.
func envelope(kind, apiVersion string, content []byte) []byte {
	head, tail := envelopeAround(kind, apiVersion, len(content))
	out := make([]byte, 0, len(head)+len(content)+len(tail))
	return append(append(append(out, head...), content...), tail...)
}

// envelopeAround returns the parts of an envelope before and after content of a size.
func envelopeAround(kind, apiVersion string, size int) (head, tail []byte) {
	var meta []byte
	meta = protowire.AppendString(protowire.AppendTag(meta, 1, protowire.BytesType), apiVersion)
	meta = protowire.AppendString(protowire.AppendTag(meta, 2, protowire.BytesType), kind)
	head = append(head, "k8s\x00"...)
	head = protowire.AppendBytes(protowire.AppendTag(head, 1, protowire.BytesType), meta)
	head = protowire.AppendVarint(protowire.AppendTag(head, 2, protowire.BytesType), uint64(size))
	tail = protowire.AppendString(protowire.AppendTag(tail, 3, protowire.BytesType), "") // contentEncoding
	return head, protowire.AppendString(protowire.AppendTag(tail, 4, protowire.BytesType), "")
}

// finish converts the JSON of an answer to the form's media type.
func (f form) finish(content []byte) ([]byte, error) {
	switch {
	case f.media == asYAML:
		out, err := yaml.JSONToYAML(content)
		if err != nil {
			return nil, fmt.Errorf("convert an answer to YAML: %w", err)
		}
		return out, nil
	case f.pretty:
		return indented(content), nil
	}
	return append(content, '\n'), nil
}

func indented(content []byte) []byte {
	var b bytes.Buffer
	if json.Indent(&b, content, "", "  ") != nil {
		return content // cannot happen: it is JSON
	}
	return b.Bytes()
}

// marshal returns the JSON of a value of a Kubernetes type. Such a value always has one.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("kubeapi: %T: %w", v, err))
	}
	return b
}
