package cli

import (
	"bytes"
	"encoding/json"
	"io"

	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/internal/plain"
)

// printObjects writes objects as JSON or YAML: one by itself, or a List, as
// kubectl does. Like there, managedFields are left out.
func printObjects(w io.Writer, batches []batch, single bool, output string) {
	items := []any{}
	for _, b := range batches {
		for _, u := range b.objects {
			u.SetManagedFields(nil)
			items = append(items, u.Object)
		}
	}
	var v any = map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}
	if single && len(items) == 1 {
		v = items[0]
	}
	// What came as JSON goes as JSON; neither encoder has anything to object.
	if output == "yaml" {
		text, _ := yaml.Marshal(v)
		_, _ = w.Write(text)
		return
	}
	encodeJSON(w, "    ", v)
}

// encodeJSON writes what came as JSON as JSON, which fails for no value.
func encodeJSON(w io.Writer, indent string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	_ = e.Encode(v)
	_, _ = w.Write(plain.JSON(b.Bytes()))
}
