package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "sigs.k8s.io/json"
)

// Raw is an object kept as the JSON it came in, with what the store and its
// readers ask for most read out of it once. It is what a server keeps that
// hands the bytes on. Read-only.
type Raw struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Created         metav1.Time
	Labels          map[string]string
	// JSON is the whole object, kind and apiVersion included.
	JSON []byte
}

// The accessors the store asks for.

func (r *Raw) GetNamespace() string         { return r.Namespace }
func (r *Raw) GetName() string              { return r.Name }
func (r *Raw) GetUID() types.UID            { return r.UID }
func (r *Raw) GetResourceVersion() string   { return r.ResourceVersion }
func (r *Raw) GetLabels() map[string]string { return r.Labels }

// MarshalJSON returns the object's own JSON.
func (r *Raw) MarshalJSON() ([]byte, error) { return r.JSON, nil }

// Size is the number of bytes the object takes, by and large.
func (r *Raw) Size() int { return len(r.JSON) }

type raw struct{ gvk schema.GroupVersionKind }

func (c raw) Accept(bool) string { return acceptJSON }

func (c raw) Decode(format Format, b []byte) (*Raw, error) {
	if format != JSON {
		return nil, fmt.Errorf("raw objects are read from JSON only")
	}
	var head struct {
		Kind       json.RawMessage `json:"kind"`
		APIVersion json.RawMessage `json:"apiVersion"`
		Metadata   struct {
			Namespace         string            `json:"namespace"`
			Name              string            `json:"name"`
			UID               types.UID         `json:"uid"`
			ResourceVersion   string            `json:"resourceVersion"`
			CreationTimestamp metav1.Time       `json:"creationTimestamp"`
			Labels            map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(b, &head); err != nil {
		return nil, err
	}
	m := head.Metadata
	out := &Raw{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		Created: m.CreationTimestamp, Labels: m.Labels,
	}
	b = bytes.TrimSpace(b)
	if len(b) == 0 || b[0] != '{' {
		return nil, fmt.Errorf("not a JSON object: %.20q", b)
	}
	var err error
	switch {
	case head.Kind == nil && head.APIVersion == nil:
		out.JSON, err = c.prepend(b)
	case isName(head.Kind) && isName(head.APIVersion):
		out.JSON = bytes.Clone(b)
	default:
		out.JSON, err = c.rewrite(b)
	}
	return out, err
}

// isName says whether a value is a text that is not empty.
func isName(value json.RawMessage) bool { return len(value) > 2 && value[0] == '"' }

// prepend writes kind and apiVersion in front of an object that has neither,
// as the items of lists do not.
func (c raw) prepend(b []byte) ([]byte, error) {
	kind, err := json.Marshal(c.gvk.Kind)
	if err != nil {
		return nil, err
	}
	apiVersion, err := json.Marshal(c.gvk.GroupVersion().String())
	if err != nil {
		return nil, err
	}
	comma := ","
	rest := bytes.TrimLeft(b[1:], " \t\r\n")
	if rest[0] == '}' {
		comma = ""
	}
	return slices.Concat([]byte(`{"kind":`), kind, []byte(`,"apiVersion":`), apiVersion, []byte(comma), rest), nil
}

// rewrite sets kind and apiVersion of an object that has only one of them, or
// has them empty, which no API server sends.
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
