package informer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// connect stands in for cluster.FromKubeconfig: it connects to an in-memory
// cluster with the given objects.
func connect(objects ...fakeapi.Object) (conn *cluster.Cluster, server *fakeapi.Cluster, stop func()) {
	server = fakeapi.New(fakeapi.Options{})
	for _, o := range objects {
		if _, err := server.Create(o); err != nil {
			log.Fatal(err)
		}
	}
	config, stop := fakeapi.InProcess(server)
	conn, err := cluster.New("demo", config)
	if err != nil {
		log.Fatal(err)
	}
	return conn, server, stop
}

func examplePod(namespace, name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

// A pod watcher: a line for each pod that is added, updated or deleted, and
// one for every pod each time the resync period is over.
func Example() {
	conn, server, disconnect := connect(examplePod("shop", "web-0", corev1.PodPending))
	defer disconnect()
	ctx := context.Background()

	pods, err := informer.New[*corev1.Pod](conn, informer.InNamespace("shop"))
	if err != nil {
		log.Fatal(err)
	}
	deleted := make(chan struct{})
	pods.AddHandler(informer.Handlers[*corev1.Pod]{
		Add: func(pod *corev1.Pod, inInitialList bool) {
			fmt.Println("added  ", pod.Kind, pod.Name, pod.Status.Phase, "initial:", inInitialList)
		},
		Update: func(old, pod *corev1.Pod) {
			fmt.Println("updated", pod.Kind, pod.Name, old.Status.Phase, "→", pod.Status.Phase)
		},
		Delete: func(pod *corev1.Pod) {
			fmt.Println("deleted", pod.Kind, pod.Name)
			close(deleted)
		},
		Synced: func() { fmt.Println("that was the initial list") },
	}, informer.Resync(10*time.Minute))
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err) // for instance: pods is forbidden, with what to do about it
	}
	defer pods.Stop(ctx)

	if _, err := server.Update(examplePod("shop", "web-0", corev1.PodRunning)); err != nil {
		log.Fatal(err)
	}
	if err := server.Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "web-0"); err != nil {
		log.Fatal(err)
	}
	<-deleted
	// Output:
	// added   Pod web-0 Pending initial: true
	// that was the initial list
	// updated Pod web-0 Pending → Running
	// deleted Pod web-0
}

// A controller with client-go's workqueue: events put keys into the queue,
// workers read the newest state from the informer and make it so.
func Example_controller() {
	conn, server, disconnect := connect(
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}},
	)
	defer disconnect()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	deployments, err := informer.New[*appsv1.Deployment](conn)
	if err != nil {
		log.Fatal(err)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	deployments.AddHandler(informer.HandlerFunc[*appsv1.Deployment](func(e informer.Event[*appsv1.Deployment]) {
		if e.Object != nil {
			queue.Add(types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name})
		}
	}))
	if err := deployments.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer deployments.Stop(ctx)

	reconcile := func(name types.NamespacedName) error {
		have, ok := deployments.Get(name.Namespace, name.Name)
		if !ok || have.Annotations["seen"] == "yes" {
			return nil
		}
		want := have.DeepCopy() // what the informer keeps is everybody's: copy before changing
		metav1.SetMetaDataAnnotation(&want.ObjectMeta, "seen", "yes")
		written, err := server.Update(want) // in a real controller: client.Update
		if err != nil {
			return err // a conflict: try again with what has come since
		}
		fmt.Println("marked", name)
		// Read your own write: do not look at the old state again.
		return deployments.WaitFor(ctx, written.GetResourceVersion())
	}
	for range 2 {
		name, shutdown := queue.Get()
		if shutdown {
			break
		}
		if err := reconcile(name); err != nil {
			queue.AddRateLimited(name)
		} else {
			queue.Forget(name)
		}
		queue.Done(name)
	}
	queue.ShutDown()
	// Unordered output:
	// marked shop/db
	// marked shop/web
}

// A watcher of any resource, known by its name only. The loop ends with its
// context; the informer goes on through broken connections by itself.
func ExampleInformer_Events() {
	conn, server, disconnect := connect()
	defer disconnect()
	err := server.AddResource(metav1.APIResource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true, ShortNames: []string{"wd"}})
	if err != nil {
		log.Fatal(err)
	}
	widget := func(color string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"namespace": "default", "name": "w"},
			"spec":     map[string]any{"color": color},
		}}
	}
	if _, err := server.Create(widget("red")); err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()

	widgets, err := informer.New[*unstructured.Unstructured](conn, informer.Resource("wd"))
	if err != nil {
		log.Fatal(err)
	}
	if err := widgets.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer widgets.Stop(ctx)
	for e := range widgets.Events(ctx) {
		switch e.Type {
		case informer.Synced:
			fmt.Println("synced")
			if _, err := server.Update(widget("blue")); err != nil {
				log.Fatal(err)
			}
			continue
		case informer.Added, informer.Updated:
			color, _, _ := unstructured.NestedString(e.Object.Object, "spec", "color")
			fmt.Println(e.Type, e.Object.GetKind(), e.Object.GetName(), color)
		}
		if e.Type == informer.Updated {
			break
		}
	}
	// Output:
	// ADDED Widget w red
	// synced
	// MODIFIED Widget w blue
}

// A query by label, answered from memory.
func ExampleInformer_List() {
	canary := examplePod("shop", "web-1", corev1.PodRunning)
	canary.Labels["track"] = "canary"
	conn, _, disconnect := connect(examplePod("shop", "web-0", corev1.PodRunning), canary)
	defer disconnect()
	ctx := context.Background()

	pods, err := informer.New[*corev1.Pod](conn)
	if err != nil {
		log.Fatal(err)
	}
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer pods.Stop(ctx)

	selector, err := labels.Parse("app=web,track!=canary")
	if err != nil {
		log.Fatal(err)
	}
	for _, pod := range pods.List(informer.Query{Namespace: "shop", Labels: selector}) {
		fmt.Println(pod.Name)
	}
	// Output: web-0
}

// Informers of a cluster can be stopped, emptied and started again, one by one
// or together, and informers of other clusters beside them.
func ExampleFactory() {
	conn, _, disconnect := connect(examplePod("shop", "web-0", corev1.PodRunning))
	defer disconnect()
	ctx := context.Background()

	factory := informer.NewFactory(conn, informer.InNamespace("shop"))
	pods, err := informer.For[*corev1.Pod](factory)
	if err != nil {
		log.Fatal(err)
	}
	services, err := informer.For[*corev1.Service](factory)
	if err != nil {
		log.Fatal(err)
	}
	if err := factory.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(pods.List(informer.Query{})), "pod,", len(services.List(informer.Query{})), "services")
	if err := factory.Empty(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(pods.List(informer.Query{})), "pods in an emptied cache")
	if err := factory.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(pods.List(informer.Query{})), "pod after starting again")
	if err := factory.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 pod, 0 services
	// 0 pods in an emptied cache
	// 1 pod after starting again
}

// restartFailed is a controller to be tested: it calls restart for each pod that
// has failed.
func restartFailed(pods *informer.Informer[*corev1.Pod], restart func(name string)) {
	check := func(pod *corev1.Pod) {
		if pod.Status.Phase == corev1.PodFailed {
			restart(pod.Name)
		}
	}
	pods.AddHandler(informer.Handlers[*corev1.Pod]{
		Add:    func(pod *corev1.Pod, _ bool) { check(pod) },
		Update: func(_, pod *corev1.Pod) { check(pod) },
	})
}

// fakePods is a source whose objects and changes are those of a test.
type fakePods struct {
	initial []*corev1.Pod
	changes chan informer.Change[*corev1.Pod]
}

func (f fakePods) List(_ context.Context, each func(*corev1.Pod) error) (resourceVersion string, err error) {
	for _, pod := range f.initial {
		if err := each(pod); err != nil {
			return "", err
		}
	}
	return "1", nil
}

func (f fakePods) Watch(ctx context.Context, _ string, each func(informer.Change[*corev1.Pod]) error) error {
	for {
		select {
		case change := <-f.changes:
			if err := each(change); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// A test of a controller without an API server: the informer gets its objects
// from a Source that the test implements.
func ExampleNewFromSource_testing() {
	pod := func(name, resourceVersion string, phase corev1.PodPhase) *corev1.Pod {
		p := examplePod("shop", name, phase)
		p.UID, p.ResourceVersion = types.UID(name), resourceVersion
		return p
	}
	source := fakePods{
		initial: []*corev1.Pod{pod("web-0", "1", corev1.PodRunning)},
		changes: make(chan informer.Change[*corev1.Pod]),
	}
	pods, err := informer.NewFromSource("test", source)
	if err != nil {
		log.Fatal(err)
	}
	restarted := make(chan string)
	restartFailed(pods, func(name string) { restarted <- name })

	ctx := context.Background()
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer pods.Stop(ctx)

	source.changes <- informer.Change[*corev1.Pod]{Type: informer.Updated, Object: pod("web-0", "2", corev1.PodFailed)}
	fmt.Println("restarted", <-restarted)

	// Events are delivered after the store is updated.
	failed, _ := pods.Get("shop", "web-0")
	fmt.Println(failed.Name, failed.Status.Phase)
	// Output:
	// restarted web-0
	// web-0 Failed
}
