package informertest_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/informertest"
)

// restartFailed is a controller to be tested: it calls restart for each pod that has
// failed.
func restartFailed(pods *informer.Informer[*corev1.Pod], restart func(*corev1.Pod)) {
	check := func(pod *corev1.Pod) {
		if pod.Status.Phase == corev1.PodFailed {
			restart(pod)
		}
	}
	pods.AddHandler(informer.Handlers[*corev1.Pod]{
		Add:    func(pod *corev1.Pod, _ bool) { check(pod) },
		Update: func(_, pod *corev1.Pod) { check(pod) },
	})
}

func pod(name string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Status: corev1.PodStatus{Phase: phase}}
}

// A test of a controller that reads and writes by the Kubernetes API, through a lost
// connection.
func ExampleServer() {
	ctx := context.Background()
	server, err := informertest.NewServer(pod("web-0", corev1.PodRunning), pod("web-1", corev1.PodRunning))
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		log.Fatal(err)
	}
	conn, err := cluster.New("test", server.Config())
	if err != nil {
		log.Fatal(err)
	}

	pods, err := informer.New[*corev1.Pod](conn)
	if err != nil {
		log.Fatal(err)
	}
	restarted := make(chan string)
	restartFailed(pods, func(pod *corev1.Pod) {
		if err := client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil {
			log.Fatal(err)
		}
		restarted <- pod.Name
	})
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer pods.Stop(ctx)

	server.BreakWatches(corev1.SchemeGroupVersion.WithResource("pods"))
	if _, err := server.Update(pod("web-1", corev1.PodFailed)); err != nil {
		log.Fatal(err)
	}
	fmt.Println("restarted", <-restarted)
	left, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, pod := range left.Items {
		fmt.Println("left", pod.Name)
	}
	// Output:
	// restarted web-1
	// left web-0
}

// A test of what a controller does with events, without an API server.
func ExampleSource() {
	ctx := context.Background()
	source := informertest.NewSource(pod("web-0", corev1.PodRunning))
	pods, err := informer.NewFromSource("test", source)
	if err != nil {
		log.Fatal(err)
	}
	restarted := make(chan string)
	restartFailed(pods, func(pod *corev1.Pod) { restarted <- pod.Name })
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer pods.Stop(ctx)

	source.Set(pod("web-0", corev1.PodFailed))
	fmt.Println("restarted", <-restarted)
	source.Set(pod("web-1", corev1.PodFailed))
	source.Expire() // the informer lists again
	fmt.Println("restarted", <-restarted)
	// Output:
	// restarted web-0
	// restarted web-1
}
