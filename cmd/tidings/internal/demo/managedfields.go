package demo

import (
	"encoding/json"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// managedFields are a large part of a real object, so simulated objects have them,
// too: the manager of each field, with the keys of the lists that server-side apply
// treats as maps.

// listKeys are the fields that identify the items of such lists.
var listKeys = map[string][]string{
	"conditions":       {"type"},
	"containers":       {"name"},
	"initContainers":   {"name"},
	"env":              {"name"},
	"volumes":          {"name"},
	"volumeMounts":     {"mountPath"},
	"ports":            {"containerPort", "protocol"},
	"ownerReferences":  {"uid"},
	"podIPs":           {"ip"},
	"hostIPs":          {"ip"},
	"imagePullSecrets": {"name"},
	"addresses":        {"type"},
}

// atomicFields are structs that are managed as one.
var atomicFields = map[string]bool{"fieldRef": true, "configMapRef": true, "selector": true, "nodeSelector": true, "secretKeyRef": true}

// fieldTree returns the FieldsV1 form of a value.
func fieldTree(name string, value any) map[string]any {
	tree := map[string]any{}
	switch v := value.(type) {
	case map[string]any:
		if atomicFields[name] {
			return tree
		}
		for field, inner := range v {
			if inner != nil {
				tree["f:"+field] = nested(field, inner)
			}
		}
	case []any:
		keys := listKeys[name]
		if name == "ports" && len(v) > 0 {
			if _, ok := v[0].(map[string]any)["containerPort"]; !ok {
				keys = []string{"port", "protocol"} // of a Service
			}
		}
		if keys == nil {
			return tree
		}
		for _, item := range v {
			fields, ok := item.(map[string]any)
			if !ok {
				return tree
			}
			key := map[string]any{}
			for _, k := range keys {
				key[k] = fields[k]
			}
			text, _ := json.Marshal(key) // strings and numbers only
			inner := fieldTree("", fields)
			inner["."] = struct{}{}
			if name == "ownerReferences" {
				inner = map[string]any{}
			}
			tree["k:"+string(text)] = inner
		}
	}
	return tree
}

// nested returns the tree of a field that is itself managed if it has children.
func nested(name string, value any) map[string]any {
	tree := fieldTree(name, value)
	if len(tree) > 0 && name != "metadata" && name != "spec" && name != "status" && name != "template" && name != "conditions" {
		tree["."] = struct{}{}
	}
	return tree
}

func fieldsV1(tree map[string]any) *metav1.FieldsV1 {
	raw, _ := json.Marshal(tree) // maps and strings only
	return metav1.NewFieldsV1(string(raw))
}

// manage records a manager as the writer of an object except for its status.
func (s *simulation) manage(obj fakeapi.Object, gvk schema.GroupVersionKind, manager string) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return
	}
	delete(content, "status")
	if m, ok := content["metadata"].(map[string]any); ok {
		for _, own := range []string{"name", "namespace", "uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"} {
			delete(m, own)
		}
	}
	s.setManaged(obj, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: gvk.GroupVersion().String(),
		Time: ptr(s.stamp()), FieldsType: "FieldsV1", FieldsV1: fieldsV1(fieldTree("", content)),
	})
}

// mutateStatus changes the status of an object on behalf of a manager.
func mutateStatus[T fakeapi.Object](s *simulation, r ref, manager string, change func(T)) bool {
	return mutateIf(s, r, func(current, obj T) bool {
		change(obj)
		if equality.Semantic.DeepEqual(statusOf(current), statusOf(obj)) && current.GetDeletionTimestamp().Equal(obj.GetDeletionTimestamp()) {
			return false
		}
		s.manageStatus(obj, r, manager)
		return true
	})
}

// statusOf returns a pointer to the status of a built-in object.
func statusOf(obj fakeapi.Object) any {
	return reflect.ValueOf(obj).Elem().FieldByName("Status").Addr().Interface()
}

func (s *simulation) manageStatus(obj fakeapi.Object, r ref, manager string) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(statusOf(obj))
	if err != nil {
		return
	}
	s.setManaged(obj, metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: r.gvr.GroupVersion().String(),
		Time: ptr(s.stamp()), FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: fieldsV1(map[string]any{"f:status": fieldTree("status", content)}),
	})
}

// setManaged replaces the entry of the same manager.
func (s *simulation) setManaged(obj fakeapi.Object, entry metav1.ManagedFieldsEntry) {
	entries := obj.GetManagedFields()
	for i := range entries {
		if entries[i].Manager == entry.Manager && entries[i].Subresource == entry.Subresource {
			entries[i] = entry
			return
		}
	}
	obj.SetManagedFields(append(entries, entry))
}

// imageParts splits an image into repository and tag.
func imageParts(image string) (repository, tag string) {
	i := strings.LastIndexByte(image, ':')
	if i < 0 {
		return image, "latest"
	}
	return image[:i], image[i+1:]
}
