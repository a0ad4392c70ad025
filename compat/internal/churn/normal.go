package churn

import (
	"encoding/json"
	"fmt"
	"strings"
)

// normal takes out of what is sent and kept what is another in each run.
type normal struct{ namespace string }

// text has the same namespace in every run.
func (n normal) text(s string) string { return strings.ReplaceAll(s, n.namespace, "NAMESPACE") }

// object makes fields of JSON, without uids, versions and times.
func (n normal) object(body []byte) (map[string]any, error) {
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

// strip empties what the API server or the clock chooses. It leaves the fields
// where they are: whether they are sent is not by chance.
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

// itemsOf is the items of a list, as JSON, in order.
func itemsOf(n normal, list []byte) ([]string, error) {
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
