package dynamicinformer_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/clientgo/dynamicinformer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	var objects []runtime.Object
	for _, namespace := range []string{"here", "there"} {
		objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", Labels: map[string]string{"app": "a"}}})
	}
	client := fake.NewSimpleDynamicClient(scheme.Scheme, objects...)
	tweaked := make(chan struct{}, 100)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "here", func(*metav1.ListOptions) { tweaked <- struct{}{} })
	inf := factory.ForResource(pods)
	if inf.Informer() != factory.ForResource(pods).Informer() {
		t.Error("the informer is not shared")
	}
	events := make(chan string, 10)
	if _, err := inf.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		events <- obj.(*unstructured.Unstructured).GetNamespace()
	}}); err != nil {
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	if got := factory.WaitForCacheSync(ctx.Done()); len(got) != 1 || !got[pods] {
		t.Errorf("synced %v", got)
	}
	if got := <-events; got != "here" || len(tweaked) == 0 {
		t.Errorf("got a pod in %q; tweaked %d times", got, len(tweaked))
	}
	found, err := inf.Lister().ByNamespace("here").List(labels.SelectorFromSet(labels.Set{"app": "a"}))
	if err != nil || len(found) != 1 {
		t.Errorf("listed %v, %v", found, err)
	}
	if state, ok := clientgo.Observe(inf.Informer()); !ok || state.Status().Resource != pods {
		t.Error("its status does not say what it is of")
	}
	cancel()
	factory.Shutdown()
	factory.Start(t.Context().Done()) // does nothing any more
}
