package cli

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/json"
)

// decode reads JSON as Kubernetes does: case matters, and whole numbers are
// int64.
func decode(body []byte, into any) error {
	return json.UnmarshalCaseSensitivePreserveInts(body, into)
}

// answer is a page of what was asked for: as a Table if the server makes one,
// as objects if not.
type answer struct {
	table     *metav1.Table
	objects   []*unstructured.Unstructured
	next      string // continue token
	remaining int64  // -1 if the server does not say
}

// decodeAnswer reads a table, or a list of objects, or one object.
func decodeAnswer(body []byte, list bool) (*answer, error) {
	var kind metav1.TypeMeta
	if err := decode(body, &kind); err != nil {
		return nil, err
	}
	if kind.Kind == "Table" && kind.GroupVersionKind().Group == metav1.GroupName {
		table := &metav1.Table{}
		if err := decode(body, table); err != nil {
			return nil, err
		}
		return &answer{table: table, next: table.Continue, remaining: remaining(table.ListMeta)}, nil
	}
	var whole map[string]any
	if err := decode(body, &whole); err != nil {
		return nil, err
	}
	if !list {
		if len(whole) == 0 {
			return nil, errors.New("the answer is empty")
		}
		return &answer{objects: []*unstructured.Unstructured{{Object: whole}}}, nil
	}
	items, ok := whole["items"].([]any)
	if !ok && whole["items"] != nil || kind.Kind == "" {
		return nil, errors.New("the answer is no list")
	}
	var meta struct {
		metav1.ListMeta `json:"metadata"`
	}
	if err := decode(body, &meta); err != nil {
		return nil, err
	}
	a := &answer{next: meta.Continue, remaining: remaining(meta.ListMeta)}
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("item %d of the list is no object", i)
		}
		u := &unstructured.Unstructured{Object: m}
		if u.GetKind() == "" { // lists leave it out
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
