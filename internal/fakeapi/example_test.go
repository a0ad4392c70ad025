package fakeapi_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A quiet cluster is an API server for tests, which can be made to fail.
func Example() {
	cluster := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(cluster)
	defer stop()
	client := kubernetes.NewForConfigOrDie(config)

	_, err := cluster.Create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}})
	if err != nil {
		fmt.Println(err)
	}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	unavailable := fakeapi.StatusFault(apierrors.NewServiceUnavailable("try again"))
	cluster.Inject(fakeapi.Times(1, fakeapi.On("list", pods, unavailable)))
	for range 2 {
		list, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			fmt.Println(err)
			continue
		}
		for _, pod := range list.Items {
			fmt.Println(pod.Name)
		}
	}
	fmt.Println(cluster.Count("list", pods), "lists")
	// Output:
	// try again
	// web
	// 2 lists
}
