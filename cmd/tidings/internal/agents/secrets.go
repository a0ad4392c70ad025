package agents

import "fmt"

// withhold removes from an object what is not shown: what no reader needs, and of a Secret
// its data, and the annotations in which tools repeat it.
func withhold(o map[string]any) {
	meta, _ := o["metadata"].(map[string]any)
	delete(meta, "managedFields")
	annotations, _ := meta["annotations"].(map[string]any)
	delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if !isSecret(o) {
		return
	}
	for _, name := range []string{"data", "stringData"} {
		if data, ok := o[name].(map[string]any); ok {
			for key, v := range data {
				data[key] = hidden(v)
			}
		} else if o[name] != nil {
			o[name] = hidden(o[name])
		}
	}
	for key, v := range annotations {
		annotations[key] = hidden(v)
	}
	for key := range o { // a Secret has no others
		switch key {
		case "apiVersion", "kind", "metadata", "type", "immutable", "data", "stringData":
		default:
			o[key] = "(not shown)"
		}
	}
}

func isSecret(o map[string]any) bool { return o["kind"] == "Secret" && o["apiVersion"] == "v1" }

func hidden(v any) string {
	if s, ok := v.(string); ok {
		return fmt.Sprintf("(%d characters, not shown)", len(s))
	}
	return "(not shown)"
}
