package cli

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"
)

// decode decodes JSON as Kubernetes does: keys are case-sensitive, and whole
// numbers are int64.
func decode(body []byte, into any) error {
	return json.UnmarshalCaseSensitivePreserveInts(body, into)
}

// response is a page of a list, or a single object: as a Table if the server
// makes one, otherwise as objects.
type response struct {
	table     *metav1.Table
	objects   []*unstructured.Unstructured
	next      string // continue token
	remaining int64  // -1 if the server does not say
}

// decodeResponse decodes a table, a list of objects, or one object.
func decodeResponse(body []byte, list bool) (*response, error) {
	var kind metav1.TypeMeta
	if err := decode(body, &kind); err != nil {
		return nil, err
	}
	if kind.Kind == "Table" && kind.GroupVersionKind().Group == metav1.GroupName {
		table := &metav1.Table{}
		if err := decode(body, table); err != nil {
			return nil, err
		}
		return &response{table: table, next: table.Continue, remaining: remaining(table.ListMeta)}, nil
	}
	var whole map[string]any
	if err := decode(body, &whole); err != nil {
		return nil, err
	}
	if !list {
		if len(whole) == 0 {
			return nil, errors.New("the response is empty")
		}
		return &response{objects: []*unstructured.Unstructured{{Object: whole}}}, nil
	}
	items, ok := whole["items"].([]any)
	if !ok && whole["items"] != nil || kind.Kind == "" {
		return nil, errors.New("the response is not a list")
	}
	var meta struct {
		metav1.ListMeta `json:"metadata"`
	}
	if err := decode(body, &meta); err != nil {
		return nil, err
	}
	a := &response{next: meta.Continue, remaining: remaining(meta.ListMeta)}
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("item %d of the list is not an object", i)
		}
		u := &unstructured.Unstructured{Object: m}
		if u.GetKind() == "" { // items of a list have none
			u.SetAPIVersion(kind.APIVersion)
			u.SetKind(strings.TrimSuffix(kind.Kind, "List"))
		}
		a.objects = append(a.objects, u)
	}
	return a, nil
}

func remaining(m metav1.ListMeta) int64 {
	switch {
	case m.RemainingItemCount != nil:
		return *m.RemainingItemCount
	case m.Continue == "":
		return 0
	}
	return -1
}
