package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// firstSync mirrors the pods of a real API server for the first time.
var firstSync = line{
	name: "firstsync",
	what: "First sync of %d pods from a real kube-apiserver, and the heap when settled",
	size: 5000, quick: 20,
	claims: []claim{
		{3, "heap KB a pod, real kube-apiserver, drop-in's representation", "heap KB/object", "tidings, typed, managedFields kept", "", timesAtMost(0.5)},
		{4, "heap KB a pod, real kube-apiserver, typed", "heap KB/object", "tidings, typed", "", timesAtMost(0.25)},
		{4, "heap KB a pod, real kube-apiserver, unstructured", "heap KB/object", "tidings, unstructured", "client-go, unstructured", target{}},
		{4, "heap KB a pod, real kube-apiserver, unstructured, compact", "heap KB/object", "tidings, unstructured, compact", "client-go, unstructured", target{}},
		{4, "heap KB a pod, real kube-apiserver, metadata only", "heap KB/object", "tidings, metadata only", "client-go, metadata only", target{}},
	},
	sides: []side{
		{"client-go, typed", clientGoSync(func(config *rest.Config) (startable, error) {
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return startable{}, err
			}
			factory := informers.NewSharedInformerFactory(client, 0)
			return startable{factory.Core().V1().Pods().Informer(), factory.Start}, nil
		})},
		{"tidings, typed", tidingsSync[*corev1.Pod]()},
		{"tidings, typed, managedFields kept", tidingsSync[*corev1.Pod](informer.KeepManagedFields())},
		{"client-go, unstructured", clientGoSync(func(config *rest.Config) (startable, error) {
			client, err := dynamic.NewForConfig(config)
			if err != nil {
				return startable{}, err
			}
			factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
			return startable{factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer(), factory.Start}, nil
		})},
		{"client-go, metadata only", clientGoSync(func(config *rest.Config) (startable, error) {
			client, err := metadata.NewForConfig(config)
			if err != nil {
				return startable{}, err
			}
			factory := metadatainformer.NewSharedInformerFactory(client, 0)
			return startable{factory.ForResource(corev1.SchemeGroupVersion.WithResource("pods")).Informer(), factory.Start}, nil
		})},
		{"tidings, unstructured", tidingsSync[*unstructured.Unstructured](informer.Resource("pods"))},
		{"tidings, unstructured, compact", tidingsSync[*unstructured.Unstructured](informer.Resource("pods"), informer.Compact())},
		{"tidings, metadata only", tidingsSync[*metav1.PartialObjectMetadata](informer.Resource("pods"))},
	},
	setup: func(ctx context.Context, size int) ([]string, func() error, error) {
		cp, err := controlplane.Launch(ctx)
		if err != nil {
			return nil, nil, err
		}
		pods := samplepods.Clone(size, 1)
		err = samplepods.Create(ctx, cp.AdminConfig(), pods, 16)
		if err == nil {
			err = samplepods.WriteStatus(ctx, cp.AdminConfig(), pods, 16)
		}
		if err != nil {
			return nil, nil, errors.Join(err, cp.Stop())
		}
		return []string{"KUBECONFIG=" + cp.Kubeconfig(controlplane.Admin)}, cp.Stop, nil
	},
}

// settle measures what sync leaves on the heap and how long it took.
func settle(size int, sync func() (count func() int, err error)) (figures, error) {
	before := heap()
	begun := time.Now()
	count, err := sync()
	if err != nil {
		return nil, err
	}
	took := time.Since(begun)
	after := heap()
	if n := count(); n != size {
		return nil, fmt.Errorf("%d objects were mirrored, not %d", n, size)
	}
	return figures{"first sync: wall s": took.Seconds(), "heap KB/object": float64(after-before) / 1024 / float64(size)}, nil
}

// heap is what is in use once everything unused is gone.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// startable is an informer of client-go's and how its factory starts it.
type startable struct {
	cache.SharedIndexInformer
	start func(<-chan struct{})
}

func clientGoSync(open func(*rest.Config) (startable, error)) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, size int) (figures, error) {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return nil, err
		}
		config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
		config.ContentType = "application/vnd.kubernetes.protobuf"
		pods, err := open(config)
		if err != nil {
			return nil, err
		}
		return settle(size, func() (func() int, error) {
			pods.start(ctx.Done())
			if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
				return nil, errors.New("client-go did not sync")
			}
			return func() int { return len(pods.GetStore().ListKeys()) }, nil
		})
	}
}

func tidingsSync[T informer.Object](opts ...informer.Option) func(context.Context, int) (figures, error) {
	return func(ctx context.Context, size int) (figures, error) {
		conn, err := cluster.FromKubeconfig(os.Getenv("KUBECONFIG"), "")
		if err != nil {
			return nil, err
		}
		inf, err := informer.New[T](conn, opts...)
		if err != nil {
			return nil, err
		}
		return settle(size, func() (func() int, error) {
			return held(inf), inf.Start(ctx)
		})
	}
}
