package codec

import (
	"bytes"
	"encoding/json"
	"fmt"

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
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
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
	if head.Kind != "" && head.APIVersion != "" {
		out.JSON = bytes.Clone(b)
		return out, nil
	}
	return out, out.restore(b, head.Kind, head.APIVersion, c.gvk)
}

// restore writes kind and apiVersion in front of an object that lacks either,
// as the items of lists do.
func (r *Raw) restore(b []byte, kind, apiVersion string, gvk schema.GroupVersionKind) error {
	var head bytes.Buffer
	head.Grow(len(b) + 64)
	head.WriteByte('{')
	field := func(name, have, want string) error {
		if have != "" {
			return nil
		}
		value, err := json.Marshal(want)
		if err != nil {
			return err
		}
		fmt.Fprintf(&head, "%q:%s,", name, value)
		return nil
	}
	if err := field("kind", kind, gvk.Kind); err != nil {
		return err
	}
	if err := field("apiVersion", apiVersion, gvk.GroupVersion().String()); err != nil {
		return err
	}
	rest := bytes.TrimSpace(b[1:])
	if len(rest) > 0 && rest[0] == '}' { // an object without a field has no comma to follow
		head.Truncate(head.Len() - 1)
	}
	head.Write(rest)
	r.JSON = head.Bytes()
	return nil
}
