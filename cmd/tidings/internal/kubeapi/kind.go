package kubeapi

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cluster"
)

// kind describes a kind for the encoding of its objects.
type kind struct {
	resource cluster.Resource
	gvk      schema.GroupVersionKind
	typed    bool // it has a Go type in this program, and so protobuf
	// custom says that the kind is defined by a CustomResourceDefinition. The API
	// server encodes such objects as sorted maps, and adds kind and apiVersion to
	// each item of a list.
	custom bool
	head   []byte // the beginning of an object's JSON, if the kind is not custom
}

// serverGroups are the groups of built-in kinds without a Go type in this program.
var serverGroups = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

func kindOf(r cluster.Resource) kind {
	k := kind{resource: r, gvk: r.GVK(), typed: scheme.Scheme.Recognizes(r.GVK())}
	k.custom = !k.typed && !slices.Contains(serverGroups, r.Group)
	k.head = append(typeMeta(k.gvk.Kind, k.gvk.GroupVersion().String()), ',')
	return k
}

// uncached reports whether kube-apiserver has no watch cache for the kind. It reads such
// a kind from etcd, with other error messages.
func (k kind) uncached() bool {
	return k.gvk.Kind == "Event" && (k.gvk.Group == "" || k.gvk.Group == "events.k8s.io")
}

// typeMeta returns the beginning of an object's JSON.
func typeMeta(kind, apiVersion string) []byte {
	out := append([]byte(`{"kind":`), quoted(kind)...)
	out = append(out, `,"apiVersion":`...)
	return append(out, quoted(apiVersion)...)
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // cannot fail for a string
	return b
}

// item appends the JSON of an object as an item of a list.
func (k kind) item(dst, object []byte) []byte {
	if k.custom {
		return append(dst, object...)
	}
	dst = append(dst, '{')
	if rest, ok := bytes.CutPrefix(object, k.head); ok {
		return append(dst, rest...)
	}
	// The fields are not in kube-apiserver's order.
	begun := len(dst)
	gjson.ParseBytes(object).ForEach(func(key, value gjson.Result) bool {
		if key.Str != "kind" && key.Str != "apiVersion" {
			if len(dst) > begun {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, key.Raw...), ':'), value.Raw...)
		}
		return true
	})
	return append(dst, '}')
}
