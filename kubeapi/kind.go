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

// kind is what must be known of a kind to encode its objects.
type kind struct {
	resource cluster.Resource
	gvk      schema.GroupVersionKind
	typed    bool // there is a Go type of it here, and so protobuf
	// custom says that its definition is a CustomResourceDefinition. The API
	// server writes those as sorted maps, and gives each item of a list its
	// kind and apiVersion.
	custom bool
	head   []byte // of the JSON of an object of a kind that is not custom
}

// serverKinds are the groups whose kinds are built in, and have no Go type here.
var serverKinds = []string{"apiextensions.k8s.io", "apiregistration.k8s.io"}

func kindOf(r cluster.Resource) kind {
	k := kind{resource: r, gvk: r.GVK(), typed: scheme.Scheme.Recognizes(r.GVK())}
	k.custom = !k.typed && !slices.Contains(serverKinds, r.Group)
	k.head = append(typeMeta(k.gvk.Kind, k.gvk.GroupVersion().String()), ',')
	return k
}

// uncached says that kube-apiserver has no watch cache of the kind, and reads it from
// etcd with other words for what is wrong.
func (k kind) uncached() bool {
	return k.gvk.Kind == "Event" && (k.gvk.Group == "" || k.gvk.Group == "events.k8s.io")
}

// typeMeta is the beginning of an object's JSON.
func typeMeta(kind, apiVersion string) []byte {
	out := append([]byte(`{"kind":`), quoted(kind)...)
	out = append(out, `,"apiVersion":`...)
	return append(out, quoted(apiVersion)...)
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return b
}

// item appends the JSON of an object as it is among the items of a list.
func (k kind) item(dst, object []byte) []byte {
	if k.custom {
		return append(dst, object...)
	}
	dst = append(dst, '{')
	if rest, ok := bytes.CutPrefix(object, k.head); ok {
		return append(dst, rest...)
	}
	// In another order than kube-apiserver's.
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
