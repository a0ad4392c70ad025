package fakeapi_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	podsGVR       = corev1.SchemeGroupVersion.WithResource("pods")
	configMapsGVR = corev1.SchemeGroupVersion.WithResource("configmaps")
	widgetsGVR    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// rig is a cluster with clients of all sorts.
type rig struct {
	*testing.T
	ctx      context.Context
	cluster  *fakeapi.Cluster
	config   *rest.Config
	typed    kubernetes.Interface // protobuf, as typed clients prefer
	dynamic  dynamic.Interface
	metadata metadata.Interface
}

// inBubble runs a test against a cluster in a synctest bubble, where time
// passes only while everything waits. It fails if anything outlives it.
func inBubble(t *testing.T, opts fakeapi.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster := fakeapi.New(opts)
		config, stop := fakeapi.InProcess(cluster)
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(&rig{
			T: t, ctx: ctx, cluster: cluster, config: config,
			typed: typedClient(t, config), dynamic: dynamic.NewForConfigOrDie(config), metadata: metadata.NewForConfigOrDie(config),
		})
	})
}

func typedClient(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) create(obj fakeapi.Object) fakeapi.Object {
	r.Helper()
	out, err := r.cluster.Create(obj)
	r.must(err)
	return out
}

// addWidgets makes the cluster serve a custom resource.
func (r *rig) addWidgets() {
	r.Helper()
	r.must(r.cluster.AddResource(metav1.APIResource{
		Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true, ShortNames: []string{"wd"},
	}, "spec.color"))
}

func configMap(namespace, name string, labels map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
}

func widget(namespace, name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec":     map[string]any{"color": color},
	}}
}

func pod(namespace, name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main", Image: "busybox"}}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// next takes the next event of a watch, as "TYPE name rv"; "end" is the end.
func next(w watch.Interface) (string, watch.Event) {
	ev, ok := <-w.ResultChan()
	if !ok {
		return "end", ev
	}
	if ev.Type == watch.Error {
		status := ev.Object.(*metav1.Status)
		return fmt.Sprintf("ERROR %d %s", status.Code, status.Reason), ev
	}
	obj := ev.Object.(metav1.Object)
	text := string(ev.Type)
	if obj.GetName() != "" {
		text += " " + obj.GetName()
	}
	if obj.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		text += " end-of-initial-events"
	}
	return text, ev
}

func (r *rig) expect(w watch.Interface, want ...string) {
	r.Helper()
	for _, text := range want {
		if got, ev := next(w); got != text {
			r.Fatalf("got event %q (%v), want %q", got, ev.Object, text)
		}
	}
}

// quiet makes sure that a watch has nothing to say.
func (r *rig) quiet(w watch.Interface) {
	r.Helper()
	synctest.Wait()
	select {
	case ev, ok := <-w.ResultChan():
		r.Fatalf("got event %v (%v), want silence", ev, ok)
	default:
	}
}

func names[T any, P interface {
	*T
	metav1.Object
}](items []T) []string {
	out := []string{}
	for i := range items {
		out = append(out, P(&items[i]).GetName())
	}
	return out
}
