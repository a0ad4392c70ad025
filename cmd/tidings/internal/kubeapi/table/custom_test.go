package table_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/internal/samplepods"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const widgets = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.table.example.com"}, "spec": {
	"group": "table.example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
	"versions": [
		{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}, "additionalPrinterColumns": [
			{"name": "Text", "type": "string", "jsonPath": ".spec.text", "description": "What it says"},
			{"name": "Any", "type": "string", "jsonPath": ".spec.any", "priority": 1},
			{"name": "Number", "type": "integer", "jsonPath": ".spec.number", "format": "int32"},
			{"name": "Share", "type": "number", "jsonPath": ".spec.share"},
			{"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag"},
			{"name": "When", "type": "date", "jsonPath": ".spec.when"},
			{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
			{"name": "First", "type": "string", "jsonPath": ".spec.list[0]"},
			{"name": "All", "type": "string", "jsonPath": ".spec.list[*]"},
			{"name": "Label", "type": "string", "jsonPath": ".metadata.labels.app\\.kubernetes\\.io/name"}
		]},
		{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
	]}}`

func TestCustomResources(t *testing.T) {
	_, u := connect(t)
	post := func(path, body string) error {
		_, err := u.do(t.Context(), http.MethodPost, path, "application/json", []byte(body))
		return err
	}
	if err := post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets); err != nil {
		t.Fatal(err)
	}
	for i, spec := range []string{
		`{}`,
		`{"text": "hello", "any": {"a": [1, "b"]}, "number": 7, "share": 0.5, "flag": true, "when": "2020-01-01T00:00:00Z", "list": ["x", "y"]}`,
		`{"text": 5, "any": "text", "number": 7.9, "share": 3, "flag": false, "when": "yesterday", "list": []}`,
		`{"text": null, "any": [true], "number": "7", "share": "much", "flag": "yes", "when": 5, "list": [{"a": 1}, 2]}`,
		`{"text": false, "any": 1.5, "number": null, "share": null, "flag": null, "when": "", "list": "none"}`,
	} {
		body := fmt.Sprintf(`{"apiVersion": "table.example.com/v1", "kind": "Widget", "metadata": {"name": "w%d", "labels": {"app.kubernetes.io/name": "l%d"}}, "spec": %s,
			"status": {"conditions": [{"type": "Other", "status": "no"}, {"type": "Ready", "status": "yes"}]}}`, i, i, spec)
		for { // until the definition is established
			err := post("/apis/table.example.com/v1/namespaces/default/widgets", body)
			if err == nil {
				break
			}
			if !strings.Contains(err.Error(), "404") {
				t.Fatal(err)
			}
			select {
			case <-t.Context().Done():
				t.Fatal(err)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	for _, version := range []string{"v1", "v2"} {
		crd, err := table.ColumnsOf([]byte(widgets), version)
		if err != nil {
			t.Fatal(err)
		}
		p := table.For(schema.GroupVersionKind{Group: "table.example.com", Version: version, Kind: "Widget"}, crd)
		want, asked, answered := u.table(t, "/apis/table.example.com/"+version+"/widgets")
		if d := cmp.Diff(want.ColumnDefinitions, p.Columns()); d != "" {
			t.Errorf("columns, want -, have +\n%s", d)
		}
		if len(want.Rows) != 5 {
			t.Errorf("%d rows", len(want.Rows))
		}
		for _, row := range want.Rows {
			if d := difference(p, row, asked, answered); d != "" {
				t.Errorf("cells, want -, have +\n%s\nof %s", d, row.Object.Raw)
			}
		}
	}
	// The definition itself is an object like any other.
	definitions, asked, answered := u.table(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
	p := table.For(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, nil)
	if d := difference(p, definitions.Rows[0], asked, answered); d != "" {
		t.Error(d)
	}
}

func TestColumnsOfSaysWhatIsWrong(t *testing.T) {
	if _, err := table.ColumnsOf([]byte(widgets), "v3"); err == nil || !strings.Contains(err.Error(), `widgets.table.example.com: it has no version "v3"`) {
		t.Error(err)
	}
	if _, err := table.ColumnsOf([]byte(`{`), "v1"); err == nil || !strings.Contains(err.Error(), "CustomResourceDefinition") {
		t.Error(err)
	}
}

// The pods of a real cluster.
func TestCellsOfSamplePods(t *testing.T) {
	cp, u := connect(t)
	pods := samplepods.Load().Items
	const some = 1000
	for i := range some {
		pod := pods[i*len(pods)/some].DeepCopy()
		pod.Namespace, pod.Name = "samples", fmt.Sprintf("%s-%d", pod.Name, i)
		pod.APIVersion, pod.Kind = "v1", "Pod"
		value, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		if err := cp.WriteEtcd(t.Context(), "/registry/pods/samples/"+pod.Name, value); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, u, served{schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, "pods", true}, "samples", some)
}

func samplePod(tb testing.TB) []byte {
	pod := samplepods.Load().Items[0]
	pod.APIVersion, pod.Kind, pod.ManagedFields = "v1", "Pod", nil
	object, err := json.Marshal(pod)
	if err != nil {
		tb.Fatal(err)
	}
	return object
}
