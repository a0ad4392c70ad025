package codec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/klauspost/compress/s2"
	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/object"
)

// Raw is the encoding of an object, possibly compressed, along with the object's
// identity. Servers keep Raws to send the encoding as it is, and compact informers to
// decode objects on read. It is read-only.
//
// There may be a million of them, so a Raw is one small struct and one string.
type Raw struct {
	// text is the concatenation of namespace, name, uid, resourceVersion, the hashes
	// of the owners if the encoding says so, and the object's encoding.
	text     string
	encoding *encoding
	ends     [4]uint16 // where the first four end
}

// encoding describes the last part of a Raw's text.
type encoding struct {
	format Format
	dict   *dictionary // nil: not compressed
	owned  *encoding   // the same, after hashes of owners; nil in that one
}

func newEncoding(format Format, dict *dictionary) *encoding {
	return &encoding{format, dict, &encoding{format, dict, nil}}
}

// plain are the encodings of uncompressed objects.
var plain = [...]*encoding{JSON: newEncoding(JSON, nil), Protobuf: newEncoding(Protobuf, nil)}

// newRaw returns a Raw with copies of id, owners and content.
func newRaw(id object.Identity, e *encoding, owners []uint64, content []byte) (*Raw, error) {
	parts := [4]string{id.Namespace, id.Name, id.UID, id.ResourceVersion}
	r, end := &Raw{encoding: e}, 0
	for i, part := range parts {
		end += len(part)
		r.ends[i] = uint16(end)
	}
	if end > 1<<16-1 {
		return nil, fmt.Errorf("the namespace, name, uid and resourceVersion of an object take %d bytes", end)
	}
	size := end + len(content)
	if owners = owners[:min(len(owners), maxHashes)]; len(owners) > 0 {
		size += hashesLen(len(owners))
		r.encoding = e.owned
	}
	text := make([]byte, 0, size)
	for _, part := range parts {
		text = append(text, part...)
	}
	if len(owners) > 0 {
		text = appendHashes(text, owners)
	}
	text = append(text, content...)
	r.text = stringOf(text)
	return r, nil
}

// Raw implements object.Object.

func (r *Raw) GetNamespace() string       { return r.text[:r.ends[0]] }
func (r *Raw) GetName() string            { return r.text[r.ends[0]:r.ends[1]] }
func (r *Raw) GetUID() types.UID          { return types.UID(r.text[r.ends[1]:r.ends[2]]) }
func (r *Raw) GetResourceVersion() string { return r.text[r.ends[2]:r.ends[3]] }

// GetLabels decodes the labels.
func (r *Raw) GetLabels() (labels map[string]string) {
	r.visit(func(format Format, content []byte) {
		if format == Protobuf {
			labels = labelsOfProtobuf(content)
		} else {
			labels = labelsOfJSON(content)
		}
	})
	return labels
}

// Content returns the object's encoding. It must not be modified.
func (r *Raw) Content() (Format, []byte) {
	if r.encoding.dict != nil {
		return r.encoding.format, r.encoding.dict.expand(nil, r.stored())
	}
	return r.encoding.format, r.stored()
}

// visit calls read with the object's encoding, which is only valid during the call.
func (r *Raw) visit(read func(Format, []byte)) {
	if r.encoding.dict == nil {
		read(r.encoding.format, r.stored())
		return
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf = r.encoding.dict.expand((*buf)[:0], r.stored())
	read(r.encoding.format, *buf)
}

// stored returns the encoding as it is kept, compressed or not.
func (r *Raw) stored() []byte {
	content := r.text[r.ends[3]:]
	if r.encoding.owned == nil {
		content = content[hashesLen(countHashes(content)):]
	}
	return unsafe.Slice(unsafe.StringData(content), len(content))
}

// JSON returns the object's JSON with kind and apiVersion, or nil if the object is
// kept as protobuf. It must not be modified.
func (r *Raw) JSON() []byte {
	if format, content := r.Content(); format == JSON {
		return content
	}
	return nil
}

// VisitJSON calls read with the object's JSON, which is only valid during the call:
// its memory may be reused. It does not call read if the object is kept as protobuf.
func (r *Raw) VisitJSON(read func([]byte)) {
	r.visit(func(format Format, content []byte) {
		if format == JSON {
			read(content)
		}
	})
}

// Len returns the length of the object's encoding, uncompressed.
func (r *Raw) Len() int {
	stored := r.stored()
	if r.encoding.dict != nil {
		if n, err := s2.DecodedLen(stored); err == nil {
			return n
		}
	}
	return len(stored)
}

// MarshalJSON returns the object's own JSON.
func (r *Raw) MarshalJSON() ([]byte, error) {
	if b := r.JSON(); b != nil {
		return b, nil
	}
	return nil, fmt.Errorf("%s is kept as protobuf, not as JSON", strings.TrimPrefix(r.GetNamespace()+"/"+r.GetName(), "/"))
}

// Size returns the approximate memory use of the object, in bytes.
func (r *Raw) Size() int { return len(r.text) }

// raw keeps objects as JSON with kind and apiVersion.
type raw struct {
	gvk  schema.GroupVersionKind
	pack *Packer // nil for no compression
	// owners keeps the hashes of the owners.
	owners bool
}

func (c raw) Accept(bool) string { return acceptJSON }

func (c raw) Decode(format Format, b []byte) (*Raw, error) {
	if format != JSON {
		return nil, fmt.Errorf("raw objects are read from JSON only")
	}
	b = bytes.TrimSpace(b)
	skim := skimmer{json: b, owners: c.owners}
	if id, typed, ok := skim.whole(); ok {
		if !typed {
			buf := buffers.Get().(*[]byte)
			defer buffers.Put(buf)
			b = c.prepend((*buf)[:0], b)
		}
		return c.pack.raw(id, JSON, b, skim.hashes)
	}
	var head struct{ kind, apiVersion gjson.Result }
	id, err := identityOfJSON(b, func(key, value gjson.Result) {
		switch key.Str {
		case "kind":
			head.kind = value
		case "apiVersion":
			head.apiVersion = value
		}
	})
	if err != nil {
		return nil, err
	}
	switch {
	case !head.kind.Exists() && !head.apiVersion.Exists():
		buf := buffers.Get().(*[]byte)
		defer buffers.Put(buf)
		b = c.prepend((*buf)[:0], b)
	case isName(head.kind) && isName(head.apiVersion):
	default:
		if b, err = c.rewrite(b); err != nil {
			return nil, err
		}
	}
	var hashes []uint64
	if c.owners {
		hashes = hashOwners(JSON, b)
	}
	return c.pack.raw(id, JSON, b, hashes)
}

// identityOfJSON returns the identity of an object, after calling visit for each of
// its fields. It returns an error if the object is not valid JSON.
func identityOfJSON(b []byte, visit func(key, value gjson.Result)) (object.Identity, error) {
	var id object.Identity
	if !(plainJSON(b) && gjson.ValidBytes(b) || json.Valid(b)) {
		var nothing json.RawMessage
		return id, json.Unmarshal(b, &nothing) // for its error
	}
	whole := gjson.Parse(stringOf(b))
	if !whole.IsObject() {
		return id, fmt.Errorf("not a JSON object: %.20q", bytes.TrimSpace(b))
	}
	var err error
	text := func(field string, value gjson.Result) string {
		if value.Type != gjson.String && value.Type != gjson.Null {
			err = fmt.Errorf("metadata.%s is not a string: %.20q", field, value.Raw)
		}
		return value.Str
	}
	whole.ForEach(func(key, value gjson.Result) bool {
		visit(key, value)
		if key.Str != "metadata" {
			return true
		}
		if !value.IsObject() {
			if value.Type != gjson.Null {
				err = fmt.Errorf("metadata is not a JSON object: %.20q", value.Raw)
			}
			return true
		}
		value.ForEach(func(key, value gjson.Result) bool {
			switch key.Str {
			case "namespace":
				id.Namespace = text(key.Str, value)
			case "name":
				id.Name = text(key.Str, value)
			case "uid":
				id.UID = text(key.Str, value)
			case "resourceVersion":
				id.ResourceVersion = text(key.Str, value)
			case "labels":
				err = cmp.Or(err, checkLabels(value))
			}
			return true
		})
		return true
	})
	return id, err
}

// checkLabels returns an error if labels is not an object of strings. GetLabels
// relies on it.
func checkLabels(labels gjson.Result) (err error) {
	if labels.Type == gjson.Null {
		return nil
	}
	if !labels.IsObject() {
		return fmt.Errorf("metadata.labels is not a JSON object: %.20q", labels.Raw)
	}
	labels.ForEach(func(key, value gjson.Result) bool {
		if value.Type != gjson.String && value.Type != gjson.Null {
			err = fmt.Errorf("metadata.labels[%q] is not a string: %.20q", key.Str, value.Raw)
		}
		return err == nil
	})
	return err
}

func labelsOfJSON(b []byte) map[string]string {
	var labels map[string]string
	gjson.Get(stringOf(b), "metadata.labels").ForEach(func(key, value gjson.Result) bool {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[strings.Clone(key.Str)] = strings.Clone(value.Str) // b is only valid during the call
		return true
	})
	return labels
}

const fieldLabels protowire.Number = 11 // of metav1.ObjectMeta, a map: repeated pairs of key (1) and value (2)

func labelsOfProtobuf(b []byte) map[string]string {
	var labels map[string]string
	fields(b, func(number protowire.Number, metadata []byte) bool {
		if number != fieldMetadata {
			return true
		}
		fields(metadata, func(number protowire.Number, pair []byte) bool {
			if number != fieldLabels {
				return true
			}
			var key, value string
			fields(pair, func(number protowire.Number, text []byte) bool {
				switch number {
				case 1:
					key = string(text)
				case 2:
					value = string(text)
				}
				return true
			})
			if labels == nil {
				labels = map[string]string{}
			}
			labels[key] = value
			return true
		})
		return true
	})
	return labels
}

// isName reports whether a value is a non-empty string.
func isName(value gjson.Result) bool { return value.Type == gjson.String && value.Str != "" }

// prepend appends to dst an object with kind and apiVersion added at its front. The
// items of lists have neither.
func (c raw) prepend(dst, b []byte) []byte {
	kind, _ := json.Marshal(c.gvk.Kind) // of a string: cannot fail
	apiVersion, _ := json.Marshal(c.gvk.GroupVersion().String())
	comma := ","
	rest := bytes.TrimLeft(b[1:], " \t\r\n")
	if rest[0] == '}' {
		comma = ""
	}
	for _, part := range [][]byte{[]byte(`{"kind":`), kind, []byte(`,"apiVersion":`), apiVersion, []byte(comma), rest} {
		dst = append(dst, part...)
	}
	return dst
}

// rewrite sets kind and apiVersion of an object with only one of them, or with empty
// ones. API servers do not send such objects.
func (c raw) rewrite(b []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	err := json.Unmarshal(b, &fields)
	if err != nil {
		return nil, err
	}
	if fields["kind"], err = json.Marshal(c.gvk.Kind); err != nil {
		return nil, err
	}
	if fields["apiVersion"], err = json.Marshal(c.gvk.GroupVersion().String()); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// WithVersion returns a copy of an object kept as JSON with another resourceVersion,
// as API servers send it when an object no longer matches a selector.
func WithVersion(r *Raw, resourceVersion string) (*Raw, error) {
	content := r.JSON()
	if content == nil {
		return nil, fmt.Errorf("%s is not kept as JSON", strings.TrimPrefix(r.GetNamespace()+"/"+r.GetName(), "/"))
	}
	quoted, err := json.Marshal(resourceVersion)
	if err != nil {
		return nil, err
	}
	if old := gjson.GetBytes(content, "metadata.resourceVersion"); old.Index > 0 {
		content = slices.Concat(content[:old.Index], quoted, content[old.Index+len(old.Raw):])
	}
	id := object.Identity{Namespace: r.GetNamespace(), Name: r.GetName(), UID: string(r.GetUID()), ResourceVersion: resourceVersion}
	return newRaw(id, plain[JSON], nil, content)
}
