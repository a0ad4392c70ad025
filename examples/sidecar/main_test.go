package main

import (
	"context"
	"io"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/examples/internal/target"
)

// TestClients reads from the sidecar by client-go: get, list, and its informers.
func TestClients(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	urls, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- run(ctx, target.Flags{Demo: true}, 0, slog.New(slog.NewTextHandler(io.Discard, nil)), func(url string) { urls <- url })
	}()
	var url string
	select {
	case url = <-urls:
	case err := <-ended:
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(&rest.Config{Host: url})
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	if pod, err := pods.Get(ctx, "web-0", metav1.GetOptions{}); err != nil || pod.Labels["app"] != "web" {
		t.Errorf("get: %v, %v", pod, err)
	}
	if _, err := pods.Get(ctx, "nothing", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get of nothing: %v", err)
	}
	list, err := client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "db-0" || list.ResourceVersion == "" {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=a"}); !apierrors.IsBadRequest(err) {
		t.Errorf("list by field: %v", err)
	}
	if _, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: "1"}); !apierrors.IsResourceExpired(err) {
		t.Errorf("watch from long ago: %v", err)
	}

	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "app=web" }))
	informer := factory.Core().V1().Pods()
	changes := make(chan string, 100)
	_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		select {
		case changes <- obj.(*corev1.Pod).Name:
		default:
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	if held, err := informer.Lister().List(labels.Everything()); err != nil || len(held) != 1 {
		t.Errorf("the client's informer holds %v, %v", held, err)
	}
	if name := <-changes; name != "web-0" {
		t.Errorf("a change of %s was delivered", name)
	}
	close(stop)
	factory.Shutdown()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
