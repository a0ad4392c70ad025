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

	"github.com/tidings-io/tidings/read"
)

// encoding is the encoding of an object in a form, without what surrounds it:
// the JSON with kind and apiVersion, or the protobuf without its envelope. It is
// shared and must not be modified.
func (h *Handler) encoding(o *read.Object, k kind, f form) ([]byte, error) {
	proto := f.media == asProtobuf
	if !proto && f.content == whole {
		return o.JSON(), nil
	}
	v := variant{media: asJSON, content: f.content, custom: k.custom}
	if proto {
		v.media = asProtobuf
	}
	if f.content == metadata {
		v.version = f.convert.Version
	}
	return h.cache.get(key{o, v}, func() (out []byte, err error) {
		o.LookJSON(func(content []byte) { out, err = f.encode(content, k) })
		return out, err
	})
}

// encode makes the encoding of an object's JSON, and keeps nothing of that.
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

// protobufOf makes the protobuf of an object, by its Go type.
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

// metadataJSON is the PartialObjectMetadata of an object.
func metadataJSON(content []byte, k kind, group string) ([]byte, error) {
	out := append(typeMeta("PartialObjectMetadata", group), `,"metadata":`...)
	if !k.custom {
		if found := gjson.GetBytes(content, "metadata"); found.IsObject() { // which kube-apiserver has written from the same Go type
			return append(append(out, found.Raw...), '}'), nil
		}
	}
	var m metav1.ObjectMeta
	if err := metadataOf(content, &m); err != nil {
		return nil, err
	}
	return append(append(out, marshal(m)...), '}'), nil
}

// partial is the form of the objects in a Table of which the metadata is wanted.
func (f form) partial() form { return form{content: metadata, convert: f.convert} }

// object is what a form says a single object is.
func (f form) object(k kind) (kind, apiVersion string) {
	if f.content == metadata {
		return "PartialObjectMetadata", f.group()
	}
	return k.gvk.Kind, k.gvk.GroupVersion().String()
}

// envelope puts protobuf into the envelope that says what it is: runtime.Unknown
// behind four bytes.
func envelope(kind, apiVersion string, content []byte) []byte {
	head, tail := envelopeAround(kind, apiVersion, len(content))
	out := make([]byte, 0, len(head)+len(content)+len(tail))
	return append(append(append(out, head...), content...), tail...)
}

// envelopeAround is what the envelope has in front of and behind so many bytes.
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

// finish makes an answer of its JSON, in the form's media type.
func (f form) finish(content []byte) ([]byte, error) {
	switch {
	case f.media == asYAML:
		out, err := yaml.JSONToYAML(content)
		if err != nil {
			return nil, fmt.Errorf("make YAML of an answer: %w", err)
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
		return content // it is JSON
	}
	return b.Bytes()
}

// marshal is the JSON of what is of a type of Kubernetes, which always has one.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Errorf("kubeapi: %T: %w", v, err))
	}
	return b
}
