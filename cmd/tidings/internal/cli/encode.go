package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// printObjects writes objects as JSON or YAML: a single one by itself, others as a
// List. Like kubectl, it leaves out managedFields.
func printObjects(w io.Writer, results []result, single bool, output string) {
	items := []any{}
	for _, b := range results {
		for _, u := range b.objects {
			u.SetManagedFields(nil)
			items = append(items, u.Object)
		}
	}
	var v any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if single && len(items) == 1 {
		v = items[0]
	}
	// The objects were JSON, so encoding them cannot fail.
	if output == "yaml" {
		text, _ := yaml.Marshal(v)
		_, _ = w.Write(text)
		return
	}
	encodeJSON(w, "    ", v)
}

// encodeJSON writes v, which must be encodable, as JSON.
func encodeJSON(w io.Writer, indent string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	_ = e.Encode(v)
	_, _ = w.Write(termsafe.JSON(b.Bytes()))
}
