package codec_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/codec"
)

var configMap = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// item is a config map of a list: without its kind.
const item = `{"metadata":{"namespace":"shop","name":"a","uid":"u","resourceVersion":"7","generation":9007199254740993,"creationTimestamp":"2026-01-02T03:04:05Z",` +
	`"labels":{"app":"web"},"managedFields":[{"manager":"m"}]},"data":{"v":"1"}}`

func decode[T any](t *testing.T, opts codec.Options, format codec.Format, raw []byte) (T, error) {
	t.Helper()
	c, err := codec.For[T](configMap, opts)
	if err != nil {
		t.Fatal(err)
	}
	input := []byte(string(raw)) // only valid during the call
	obj, err := c.Decode(format, input)
	for i := range input {
		input[i] = 'x'
	}
	return obj, err
}

func protobuf(t *testing.T) []byte {
	t.Helper()
	var cm corev1.ConfigMap
	if err := json.Unmarshal([]byte(item), &cm); err != nil {
		t.Fatal(err)
	}
	b, err := cm.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestTyped(t *testing.T) {
	for format, raw := range map[codec.Format][]byte{codec.JSON: []byte(item), codec.Protobuf: protobuf(t)} {
		cm, err := decode[*corev1.ConfigMap](t, codec.Options{}, format, raw)
		if err != nil || cm.Kind != "ConfigMap" || cm.APIVersion != "v1" || cm.Name != "a" || cm.Data["v"] != "1" || cm.Generation != 9007199254740993 || cm.ManagedFields != nil {
			t.Errorf("format %d: %+v, %v", format, cm, err)
		}
		if cm, _ = decode[*corev1.ConfigMap](t, codec.Options{KeepManagedFields: true}, format, raw); len(cm.ManagedFields) != 1 {
			t.Errorf("format %d: managed fields were to be kept: %+v", format, cm)
		}
		m, err := decode[*metav1.PartialObjectMetadata](t, codec.Options{}, format, raw)
		if err != nil || m.Kind != "ConfigMap" || m.APIVersion != "v1" || m.Labels["app"] != "web" || m.ManagedFields != nil {
			t.Errorf("format %d: %+v, %v", format, m, err)
		}
		if m, _ = decode[*metav1.PartialObjectMetadata](t, codec.Options{KeepManagedFields: true}, format, raw); len(m.ManagedFields) != 1 {
			t.Errorf("format %d: managed fields were to be kept: %+v", format, m)
		}
	}
}

func TestUnstructured(t *testing.T) {
	u, err := decode[*unstructured.Unstructured](t, codec.Options{}, codec.JSON, []byte(item))
	if err != nil {
		t.Fatal(err)
	}
	generation, _, _ := unstructured.NestedInt64(u.Object, "metadata", "generation")
	if u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" || u.GetLabels()["app"] != "web" || generation != 9007199254740993 || u.GetManagedFields() != nil {
		t.Errorf("%v", u)
	}
	if u, _ = decode[*unstructured.Unstructured](t, codec.Options{KeepManagedFields: true}, codec.JSON, []byte(item)); len(u.GetManagedFields()) != 1 {
		t.Errorf("managed fields were to be kept: %v", u)
	}
}

// Raw keeps the encoding unchanged, except that it adds missing kind and apiVersion in
// front.
func TestRaw(t *testing.T) {
	whole := `{"kind":"ConfigMap","apiVersion":"v1",` + item[1:]
	for in, want := range map[string]string{
		item:                whole,
		whole:               whole,
		" \n" + item + "\n": whole,
		`{ "kind" : "Other",` + "\n" + `"apiVersion":"x/v1"}`: `{ "kind" : "Other",` + "\n" + `"apiVersion":"x/v1"}`,
		`{}`:                       `{"kind":"ConfigMap","apiVersion":"v1"}`,
		` { } `:                    `{"kind":"ConfigMap","apiVersion":"v1"}`,
		"{\n \"data\": {\"<\":1}}": `{"kind":"ConfigMap","apiVersion":"v1","data": {"<":1}}`,
	} {
		r, err := decode[*codec.Raw](t, codec.Options{}, codec.JSON, []byte(in))
		if err != nil || string(r.JSON()) != want || r.Size() < len(want) {
			t.Errorf("%s is kept as\n%s, not\n%s: %v", in, r.JSON(), want, err)
		}
	}
	r, err := decode[*codec.Raw](t, codec.Options{}, codec.JSON, []byte(item))
	if err != nil {
		t.Fatal(err)
	}
	if r.GetNamespace() != "shop" || r.GetName() != "a" || r.GetUID() != "u" || r.GetResourceVersion() != "7" || !reflect.DeepEqual(r.GetLabels(), map[string]string{"app": "web"}) {
		t.Errorf("what is read out is %+v", r)
	}
	if b, err := json.Marshal([]*codec.Raw{r}); err != nil || string(b) != "["+whole+"]" {
		t.Errorf("written as %s: %v", b, err)
	}
}

// Objects that no server sends are errors, or complete with their kind.
func TestOddObjects(t *testing.T) {
	for _, in := range []string{``, ` `, `null`, ` null `, `5`, `"text"`, `[]`, `[{}]`, `{`, `{}{}`, `{"metadata":5}`, `{"metadata":{"name":5}}`, `{"metadata":{"labels":{"a":1}}}`} {
		for name, err := range map[string]error{
			"typed":    second(decode[*corev1.ConfigMap](t, codec.Options{}, codec.JSON, []byte(in))),
			"metadata": second(decode[*metav1.PartialObjectMetadata](t, codec.Options{}, codec.JSON, []byte(in))),
			"raw":      second(decode[*codec.Raw](t, codec.Options{}, codec.JSON, []byte(in))),
		} {
			if err == nil {
				t.Errorf("%s is read as %s", in, name)
			}
		}
		u, err := decode[*unstructured.Unstructured](t, codec.Options{}, codec.JSON, []byte(in))
		if err == nil && !strings.HasPrefix(in, `{"metadata"`) || err == nil && u.GetKind() != "ConfigMap" {
			t.Errorf("%s is read as %v", in, u)
		}
	}
	for _, in := range []string{`{"kind":"Pod"}`, `{"kind":"","apiVersion":""}`, `{"kind":null,"apiVersion":null,"data":{"a":"<&>"}}`, `{"apiVersion":5}`} {
		r, err := decode[*codec.Raw](t, codec.Options{}, codec.JSON, []byte(in))
		u := &unstructured.Unstructured{}
		if err != nil || u.UnmarshalJSON(r.JSON()) != nil || u.GetKind() != "ConfigMap" || u.GetAPIVersion() != "v1" {
			t.Errorf("%s is kept as %s: %v", in, r.JSON(), err)
		}
	}
	for _, in := range []string{"\x0a", "\xff", "\x0a\x05a", "\x08"} {
		if cm, err := decode[*corev1.ConfigMap](t, codec.Options{}, codec.Protobuf, []byte(in)); err == nil {
			t.Errorf("%q is read as %v", in, cm)
		}
	}
	for name, err := range map[string]error{
		"unstructured": second(decode[*unstructured.Unstructured](t, codec.Options{}, codec.Protobuf, protobuf(t))),
		"raw":          second(decode[*codec.Raw](t, codec.Options{}, codec.Protobuf, protobuf(t))),
		"custom":       second(decode[*custom](t, codec.Options{}, codec.Protobuf, protobuf(t))),
	} {
		if err == nil {
			t.Errorf("%s objects are read from protobuf", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// custom is the Go type of a custom resource, which has no protobuf.
type custom struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Data              map[string]string `json:"data"`
}

func (c *custom) DeepCopyObject() runtime.Object { out := *c; return &out }

func TestCustomTypesAreRequestedInJSON(t *testing.T) {
	c, err := codec.For[*custom](schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}, codec.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c.Accept(true) != "application/json" || c.Accept(false) != "application/json" {
		t.Errorf("it accepts %s", c.Accept(true))
	}
	obj, err := c.Decode(codec.JSON, []byte(item))
	if err != nil || obj.Kind != "Thing" || obj.APIVersion != "example.com/v1" || obj.Data["v"] != "1" {
		t.Errorf("%+v, %v", obj, err)
	}
}

// The error for an unsupported type lists the supported ones.
func TestUnsupportedTypes(t *testing.T) {
	for name, err := range map[string]error{
		"a string":        second(codec.For[string](configMap, codec.Options{})),
		"a struct":        second(codec.For[corev1.ConfigMap](configMap, codec.Options{})),
		"no object":       second(codec.For[*metav1.ObjectMeta](configMap, codec.Options{})),
		"a list":          second(codec.For[*corev1.ConfigMapList](configMap, codec.Options{})),
		"an interface":    second(codec.For[metav1.Object](configMap, codec.Options{})),
		"a nil interface": second(codec.For[any](configMap, codec.Options{})),
	} {
		if err == nil || !strings.Contains(err.Error(), "PartialObjectMetadata") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRaw(f *testing.F) {
	for _, seed := range []string{item, `{}`, `{"kind":"ConfigMap"}`, `{"kind":null}`, ` {"a" : [ 1e3 ] } `, `{"kind":"A","apiVersion":"b","kind":""}`, `null`, `{"\u006bind":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := decode[*codec.Raw](t, codec.Options{}, codec.JSON, in)
		if err != nil {
			return
		}
		var before, after map[string]any
		if err := json.Unmarshal(in, &before); err != nil {
			t.Fatalf("%q is no JSON object and is kept as %q", in, r.JSON())
		}
		if err := json.Unmarshal(r.JSON(), &after); err != nil {
			t.Fatalf("%q is kept as %q: %v", in, r.JSON(), err)
		}
		for _, name := range []string{"kind", "apiVersion"} {
			if value, ok := after[name].(string); !ok || value == "" {
				t.Fatalf("%q is kept without its %s: %q", in, name, r.JSON())
			}
			delete(before, name)
			delete(after, name)
		}
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%q is kept as %q", in, r.JSON())
		}
	})
}
