package informer

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/codec"
)

// Kind says that the informer's Go type is one for objects of the given kind, like
// "Pod", for a type whose name or registration does not say so. It is needed with
// [Resource] only:
//
//	type summary struct { … } // the few fields of a pod that the program reads
//	pods, err := informer.New[*summary](conn, informer.Resource("pods"), informer.Kind("Pod"))
//
// [Informer.Start] refuses a resource of another kind, with a [*RefusedError]. Without
// Kind, a type that is registered in the [Scheme] must be registered for the group,
// version and kind of the resource. The name of another type must contain the kind, as
// SlimPod does. *unstructured.Unstructured and *metav1.PartialObjectMetadata fit all.
func Kind(kind string) Option {
	return func(o *options) error {
		if kind == "" {
			return errors.New("informer.Kind: the kind is empty")
		}
		o.kind = kind
		return nil
	}
}

// checkKind returns a refusal if the objects of a resource are not of the kind of t.
func checkKind(r cluster.Resource, t reflect.Type, o *options) error {
	empty := newOf(t)
	switch empty.(type) {
	case *unstructured.Unstructured, *metav1.PartialObjectMetadata, *codec.Raw:
		if o.kind == "" {
			return nil
		}
	}
	served := fmt.Sprintf("%s are objects of kind %s", r, kindName(r.GVK()))
	if o.kind != "" {
		if o.kind == r.Kind {
			return nil
		}
		return mismatch(fmt.Errorf("%s, and informer.Kind says that %s is a Go type for kind %s", served, t, o.kind),
			"name the resource of that kind with informer.Resource")
	}
	sample, _ := empty.(runtime.Object)
	kinds, _, err := o.scheme.ObjectKinds(sample)
	if err == nil {
		if slices.Contains(kinds, r.GVK()) {
			return nil
		}
		return mismatch(fmt.Errorf("%s, and %s is the Go type of kind %s", served, t, kindName(kinds[0])),
			"use the Go type of the resource, or leave out informer.Resource: it follows from the type")
	}
	if strings.Contains(strings.ToLower(t.Elem().Name()), strings.ToLower(r.Kind)) {
		return nil
	}
	return mismatch(fmt.Errorf("%s, and nothing says that %s is a Go type for them", served, t),
		fmt.Sprintf("name the resource of the type with informer.Resource, or confirm the type with informer.Kind(%q)", r.Kind))
}

// kindName is like "Pod (v1)".
func kindName(kind schema.GroupVersionKind) string {
	return fmt.Sprintf("%s (%s)", kind.Kind, kind.GroupVersion())
}

func mismatch(err error, hint string) error {
	return refusal{error: err, reason: metav1.StatusReasonBadRequest, hint: hint}
}
