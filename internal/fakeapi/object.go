package fakeapi

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// kindOf returns the kind of an object of any form.
func kindOf(obj runtime.Object) (schema.GroupVersionKind, error) {
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return gvk, nil
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("fakeapi: an object of type %T, which is not built in, needs kind and apiVersion: %w", obj, err)
	}
	return gvks[0], nil
}

// empty returns a new object of the resource in its stored form.
func (r *resource) empty() Object {
	if r.typed {
		if obj, err := scheme.Scheme.New(r.gvk); err == nil {
			return obj.(Object)
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.gvk)
	return u
}

// toStored returns a copy of obj in the resource's stored form: Go types without
// kind, because items of a list have none, and custom resources unstructured with
// their kind.
func (r *resource) toStored(obj Object) (Object, error) {
	u, isUnstructured := obj.(*unstructured.Unstructured)
	if r.typed && isUnstructured {
		out := r.empty()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out); err != nil {
			return nil, err
		}
		out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return out, nil
	}
	if r.typed || isUnstructured {
		out := obj.DeepCopyObject().(Object)
		if r.typed {
			out.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
		return out, nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{Object: content}
	out.SetGroupVersionKind(r.gvk)
	return out, nil
}

// likeInput returns a copy of a stored object in the form of the object in.
func (r *resource) likeInput(stored, in Object) (Object, error) {
	if _, ok := in.(*unstructured.Unstructured); ok {
		return r.toUnstructured(stored)
	}
	if reflect.TypeOf(in) == reflect.TypeOf(stored) {
		return stored.DeepCopyObject().(Object), nil
	}
	u, err := r.toUnstructured(stored)
	if err != nil {
		return nil, err
	}
	out := reflect.New(reflect.TypeOf(in).Elem()).Interface().(Object)
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, out)
}

// toUnstructured returns a copy of a stored object with its kind.
func (r *resource) toUnstructured(stored Object) (*unstructured.Unstructured, error) {
	if u, ok := stored.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(r.gvk)
	return u, nil
}

// shallow copies the outermost struct of a stored object, so that the copy's kind
// or resourceVersion can be set.
func shallow(obj Object) Object {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		out := make(map[string]any, len(u.Object))
		for k, v := range u.Object {
			out[k] = v
		}
		if m, ok := out["metadata"].(map[string]any); ok {
			metadata := make(map[string]any, len(m))
			for k, v := range m {
				metadata[k] = v
			}
			out["metadata"] = metadata
		}
		return &unstructured.Unstructured{Object: out}
	}
	v := reflect.New(reflect.TypeOf(obj).Elem())
	v.Elem().Set(reflect.ValueOf(obj).Elem())
	return v.Interface().(Object)
}

// withKind returns the object as it is sent on its own.
func (r *resource) withKind(obj Object) Object {
	if !r.typed {
		return obj
	}
	out := shallow(obj)
	out.GetObjectKind().SetGroupVersionKind(r.gvk)
	return out
}

// marshalJSON encodes a stored object for a patch.
func (r *resource) marshalJSON(obj Object) ([]byte, error) {
	return json.Marshal(r.withKind(obj))
}
