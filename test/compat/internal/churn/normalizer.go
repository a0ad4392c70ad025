package churn

import (
	"encoding/json"
	"fmt"
	"strings"
)

// normalizer removes from requests and objects what differs between runs.
type normalizer struct{ namespace string }

// text replaces the namespace by a constant.
func (n normalizer) text(s string) string { return strings.ReplaceAll(s, n.namespace, "NAMESPACE") }

// object decodes JSON and removes uids, versions and times.
func (n normalizer) object(body []byte) (map[string]any, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var fields map[string]any
	if err := json.Unmarshal([]byte(n.text(string(body))), &fields); err != nil {
		return nil, fmt.Errorf("%w: %.100q", err, body)
	}
	strip(fields)
	return fields, nil
}

// strip replaces values that the API server or the clock chooses. It keeps the
// fields: whether they are set does not depend on timing.
func strip(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, field := range value {
			switch name {
			case "uid", "resourceVersion", "creationTimestamp", "managedFields":
				if field != nil {
					value[name] = "SOME"
				}
			default:
				strip(field)
			}
		}
	case []any:
		for _, field := range value {
			strip(field)
		}
	}
}

// itemsOf returns the items of a list as JSON, in order.
func itemsOf(n normalizer, list []byte) ([]string, error) {
	fields, err := n.object(list)
	if err != nil {
		return nil, err
	}
	items, ok := fields["items"].([]any)
	if !ok {
		return nil, fmt.Errorf("no list: %.100q", list)
	}
	var lines []string
	for _, item := range items {
		line, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		lines = append(lines, string(line))
	}
	return lines, nil
}
