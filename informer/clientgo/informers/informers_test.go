package informers_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo/informers"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func pod(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}}}
}

// ours says whether an informer, behind its typed wrapper or not, is of this
// project.
func ours(inf cache.SharedIndexInformer) bool {
	v := reflect.ValueOf(inf)
	for v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		inner := v.Elem().FieldByName("SharedIndexInformer")
		if !inner.IsValid() {
			break
		}
		v = inner.Elem()
	}
	return strings.Contains(v.Type().Elem().PkgPath(), "tidings")
}

// TestEveryGeneratedInformerIsOurs walks through all groups, versions and
// resources of the factory.
func TestEveryGeneratedInformerIsOurs(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	seen := 0
	each := func(v reflect.Value, visit func(string, reflect.Value)) {
		for m := range v.Type().NumMethod() {
			method := v.Method(m)
			if method.Type().NumIn() == 0 && method.Type().NumOut() == 1 && method.Type().Out(0).Kind() == reflect.Interface {
				visit(v.Type().Method(m).Name, method.Call(nil)[0])
			}
		}
	}
	each(reflect.ValueOf(&factory).Elem(), func(group string, g reflect.Value) {
		each(g, func(version string, v reflect.Value) {
			each(v, func(resource string, r reflect.Value) {
				inf, ok := r.Interface().(interface {
					Informer() cache.SharedIndexInformer
				})
				if !ok {
					return
				}
				seen++
				if !ours(inf.Informer()) {
					t.Errorf("%s %s %s is not ours", group, version, resource)
				}
			})
		})
	})
	if seen < 80 {
		t.Errorf("only %d informers were looked at", seen)
	}
}

func TestAFactory(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := fake.NewClientset(pod("here", "a"), pod("here", "b"), pod("there", "c"),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "d"}})
	tweaked := make(chan struct{}, 100)
	factory := informers.NewSharedInformerFactoryWithOptions(client, time.Hour,
		informers.WithNamespace("here"),
		informers.WithTweakListOptions(func(*metav1.ListOptions) { tweaked <- struct{}{} }),
		informers.WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Pod{}: 2 * time.Hour}),
		informers.WithTransform(func(obj any) (any, error) {
			obj.(metav1.Object).SetAnnotations(map[string]string{"seen": "yes"})
			return obj, nil
		}))
	pods := factory.Core().V1().Pods()
	if pods.Informer().GetIndexer() != factory.Core().V1().Pods().Informer().GetIndexer() {
		t.Error("the informer of pods is not shared")
	}
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods"))
	if err != nil || generic.Informer().GetIndexer() != pods.Informer().GetIndexer() {
		t.Error("the generic informer of pods is another one:", err)
	}
	deployments, err := factory.ForResource(appsv1.SchemeGroupVersion.WithResource("deployments"))
	if err != nil || !ours(deployments.Informer()) || factory.Apps().V1().Deployments().Informer().GetIndexer() != deployments.Informer().GetIndexer() {
		t.Error("the generic informer of deployments:", err)
	}
	if _, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("nopes")); err == nil {
		t.Error("a resource that there is not has an informer")
	}
	if got := factory.WaitForCacheSync(ctx.Done()); len(got) != 0 {
		t.Error("waited for informers that have not been started:", got)
	}
	factory.StartWithContext(ctx)
	factory.StartWithContext(ctx)
	result := factory.WaitForCacheSyncWithContext(ctx)
	if err := result.AsError(); err != nil || len(result.Synced) != 2 || !result.Synced[reflect.TypeFor[*corev1.Pod]()] {
		t.Errorf("synced %v, %v", result.Synced, err)
	}
	found, err := pods.Lister().Pods("here").List(labels.SelectorFromSet(labels.Set{"app": "b"}))
	if err != nil || len(found) != 1 || found[0].Annotations["seen"] != "yes" {
		t.Errorf("listed %v, %v", found, err)
	}
	if all := pods.Informer().GetStore().ListKeys(); fmt.Sprint(all) != "[here/a here/b]" {
		t.Errorf("the store holds %v", all)
	}
	if o, err := deployments.Lister().ByNamespace("here").Get("d"); err != nil || o == nil {
		t.Errorf("no deployment: %v", err)
	}
	if len(tweaked) == 0 {
		t.Error("the list options were not tweaked")
	}
	events := make(chan string, 10)
	if _, err := pods.Informer().AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{AddFunc: func(obj any, initial bool) {
		events <- fmt.Sprint(obj.(*corev1.Pod).Name, " ", initial)
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("here").Create(ctx, pod("here", "e"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a true", "b true", "e false"} {
		if got := <-events; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	late := factory.Core().V1().Nodes().Informer()
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), late.HasSynced) {
		t.Error("the late informer did not start")
	}
	cancel()
	factory.Shutdown()
	if !pods.Informer().IsStopped() {
		t.Error("shut down before the informers ended")
	}
}

// TestPartsAreShared: parts are shared by default with a client of a server, which
// decodes new objects, and never with a fake client, which keeps its objects.
func TestPartsAreShared(t *testing.T) {
	var replicas []runtime.Object
	server := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(server)
	defer stop()
	for i := range 30 {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("web-%d", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web", Args: []string{"serve", "--port=80"}}}},
		}
		if _, err := server.Create(pod.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, pod)
	}
	real := kubernetes.NewForConfigOrDie(config)
	for _, c := range []struct {
		name    string
		client  kubernetes.Interface
		options []informers.SharedInformerOption
		shared  bool
	}{
		{"a server", real, nil, true},
		{"a server, asked not to", real, []informers.SharedInformerOption{informers.WithUnsharedParts()}, false},
		{"a fake", fake.NewClientset(replicas...), nil, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0, c.options...)
		lister := factory.Core().V1().Pods().Lister()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		pods, err := lister.List(labels.Everything())
		if err != nil || len(pods) != len(replicas) {
			t.Fatalf("%s: %d pods, %v", c.name, len(pods), err)
		}
		arrays := map[*corev1.Container]int{}
		for _, pod := range pods {
			arrays[&pod.Spec.Containers[0]]++
		}
		if shared := len(arrays) < len(pods)/2; shared != c.shared {
			t.Errorf("%s: %d pods have %d arrays of containers", c.name, len(pods), len(arrays))
		}
		cancel()
		factory.Shutdown()
	}
}
