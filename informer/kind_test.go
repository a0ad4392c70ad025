package informer_test

import (
	"errors"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Widget is the Go type of a custom resource. It is in no scheme.
type Widget struct {
	metav1.TypeMeta
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct{ Color string }
}

func (w *Widget) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// slimWidget is a smaller type for the same objects, summary one of another name.
type (
	slimWidget struct{ Widget }
	summary    struct{ Widget }
	slimPod    struct{ Widget }
)

// startOne creates an informer of T, starts it and returns the number of objects.
func startOne[T informer.Object](r *rig, opts ...informer.Option) (objects int, err error) {
	inf, err := informer.New[T](r.conn, opts...)
	if err != nil {
		return 0, err
	}
	r.stopAfter(inf)
	err = inf.Start(r.ctx)
	return len(inf.List(informer.Query{})), err
}

// A resource whose objects are not those of the Go type is refused, by names that
// say what is wrong.
func TestTypeAndResourceMustBelongTogether(t *testing.T) {
	own := runtime.NewScheme()
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	own.AddKnownTypes(gv, &Widget{})
	older := runtime.NewScheme()
	older.AddKnownTypeWithName(schema.GroupVersionKind{Group: "example.com", Version: "v1beta1", Kind: "Widget"}, &Widget{})
	resource, kind := informer.Resource, informer.Kind
	for name, test := range map[string]struct {
		start   func(*rig) (int, error)
		refused string // empty: it starts, with an object
	}{
		"another built-in kind": {func(r *rig) (int, error) { return startOne[*corev1.Pod](r, resource("services")) },
			"list services of cluster test: services are objects of kind Service (v1), and *v1.Pod is the Go type of kind Pod (v1); use the Go type of the resource, or leave out informer.Resource"},
		"another built-in kind, compact": {func(r *rig) (int, error) { return startOne[*corev1.Pod](r, resource("services"), informer.Compact()) }, "*v1.Pod is the Go type of kind Pod"},
		"another group": {func(r *rig) (int, error) {
			return startOne[*autoscalingv1.HorizontalPodAutoscaler](r, resource("widgets"))
		}, "HorizontalPodAutoscaler (autoscaling/v1)"},
		"an own type, not registered": {func(r *rig) (int, error) { return startOne[*Widget](r, resource("configmaps")) },
			`configmaps are objects of kind ConfigMap (v1), and nothing says that *informer_test.Widget is a Go type for them; name the resource of the type with informer.Resource, or confirm the type with informer.Kind("ConfigMap")`},
		"an own type, registered": {func(r *rig) (int, error) {
			return startOne[*Widget](r, resource("configmaps"), informer.Scheme(own))
		}, "*informer_test.Widget is the Go type of kind Widget (example.com/v1)"},
		"another version": {func(r *rig) (int, error) {
			return startOne[*Widget](r, resource("widgets"), informer.Scheme(older))
		}, "widgets.example.com are objects of kind Widget (example.com/v1), and *informer_test.Widget is the Go type of kind Widget (example.com/v1beta1)"},
		"a confirmed kind": {func(r *rig) (int, error) { return startOne[*summary](r, resource("configmaps"), kind("Widget")) },
			"informer.Kind says that *informer_test.summary is a Go type for kind Widget"},
		"a kind without a resource": {func(r *rig) (int, error) { return startOne[*corev1.Pod](r, kind("Pod")) }, "informer.Kind needs informer.Resource"},

		"the resource of the type":      {func(r *rig) (int, error) { return startOne[*corev1.Pod](r, resource("po")) }, ""},
		"unstructured":                  {func(r *rig) (int, error) { return startOne[*unstructured.Unstructured](r, resource("widgets")) }, ""},
		"metadata":                      {func(r *rig) (int, error) { return startOne[*metav1.PartialObjectMetadata](r, resource("pods")) }, ""},
		"an own type":                   {func(r *rig) (int, error) { return startOne[*Widget](r, resource("widgets")) }, ""},
		"an own type by its scheme":     {func(r *rig) (int, error) { return startOne[*Widget](r, informer.Scheme(own)) }, ""},
		"a smaller own type":            {func(r *rig) (int, error) { return startOne[*slimWidget](r, resource("widgets")) }, ""},
		"a smaller built-in type":       {func(r *rig) (int, error) { return startOne[*slimPod](r, resource("pods")) }, ""},
		"a smaller type of any name":    {func(r *rig) (int, error) { return startOne[*summary](r, resource("pods"), kind("Pod")) }, ""},
		"a built-in type of a resource": {func(r *rig) (int, error) { return startOne[*corev1.Pod](r, resource("widgets"), kind("Widget")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.addWidgets()
				_, err := r.server.Create(widget("a"))
				r.must(err)
				_, err = r.server.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}})
				r.must(err)
				r.set("default", "a", "1")
				objects, err := test.start(r)
				refused := (*informer.RefusedError)(nil)
				switch {
				case test.refused == "" && (err != nil || objects != 1):
					t.Errorf("it has %d objects: %v", objects, err)
				case test.refused != "" && (err == nil || !strings.Contains(err.Error(), test.refused) || !errors.As(err, &refused) && name != "a kind without a resource"):
					t.Errorf("it ended with %v, not with\n%s", err, test.refused)
				}
			})
		})
	}
}
