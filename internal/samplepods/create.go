package samplepods

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Create creates pods in the cluster of config, up to parallelism at a time, after
// creating their namespaces if those are missing. It stops at the first error. A
// pod that exists already is an error.
//
// The API server assigns the uid, resourceVersion, creationTimestamp and
// managedFields, which name kube-controller-manager as those of the recorded pods
// do. The pods are pending, since a create request cannot set the status; call
// [WriteStatus] for that.
//
// The API server must run without the admission plugin ServiceAccount, since the
// service accounts do not exist. If controllers run in the cluster, the garbage
// collector deletes the pods, since their ReplicaSets do not exist.
func Create(ctx context.Context, config *rest.Config, pods []corev1.Pod, parallelism int) error {
	client, err := clientFor(config, "kube-controller-manager")
	if err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	if err := createNamespaces(ctx, client, pods); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	return each(ctx, pods, parallelism, func(ctx context.Context, pod *corev1.Pod) error {
		err := client.Post().Namespace(pod.Namespace).Resource("pods").Body(writable(pod)).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("create pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil
	})
}

// WriteStatus writes the status of pods that [Create] has created, up to parallelism
// at a time. It stops at the first error. managedFields name kwok as the writer.
func WriteStatus(ctx context.Context, config *rest.Config, pods []corev1.Pod, parallelism int) error {
	client, err := clientFor(config, "kwok")
	if err != nil {
		return fmt.Errorf("write the status of pods: %w", err)
	}
	return each(ctx, pods, parallelism, func(ctx context.Context, pod *corev1.Pod) error {
		err := client.Put().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).SubResource("status").
			Body(writable(pod)).Do(ctx).Error()
		if err != nil {
			return fmt.Errorf("write the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		return nil
	})
}

// writable returns the pod without the metadata that the API server assigns. Without
// a resourceVersion, an update applies to any version of the pod.
func writable(pod *corev1.Pod) *corev1.Pod {
	writable := *pod
	writable.UID, writable.ResourceVersion, writable.ManagedFields = "", "", nil
	return &writable
}

func createNamespaces(ctx context.Context, client *rest.RESTClient, pods []corev1.Pod) error {
	names := map[string]bool{}
	for i := range pods {
		name := pods[i].Namespace
		if names[name] {
			continue
		}
		names[name] = true
		err := client.Post().Resource("namespaces").
			Body(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}).Do(ctx).Error()
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %s: %w", name, err)
		}
	}
	return nil
}

// each calls write for every pod, up to parallelism at a time, until one fails.
func each(ctx context.Context, pods []corev1.Pod, parallelism int, write func(context.Context, *corev1.Pod) error) error {
	writers, running := errgroup.WithContext(ctx)
	writers.SetLimit(parallelism)
	for i := range pods {
		if running.Err() != nil {
			break
		}
		writers.Go(func() error { return write(running, &pods[i]) })
	}
	if err := writers.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// clientFor returns a client that uses protobuf and has no rate limit. Its user agent
// is program, the name that managedFields get.
func clientFor(config *rest.Config, program string) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.APIPath = "/api"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeProtobuf
	config.UserAgent = program
	config.QPS = -1
	return rest.RESTClientFor(config)
}
