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

// Create writes pods to the API server of config, up to parallelism at a time,
// and their namespaces before them where those are missing. It returns the
// first error, with the rest unwritten; a pod that is there already is one.
//
// The API server gives the pods their uid, resourceVersion, creationTimestamp
// and managedFields, which name kube-controller-manager as the recorded ones
// do. They are pending, since a status is not for whoever creates a pod to
// give: [WriteStatus] makes them what pods says.
//
// The API server must run without the admission plugin ServiceAccount, since
// nobody makes the account; and where controllers run, the garbage collector
// deletes pods of ReplicaSets that are not there.
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

// WriteStatus writes the status of pods that are in the API server of config,
// as [Create] has put them there, up to parallelism at a time. It returns the
// first error, with the rest unwritten. managedFields say that kwok has
// written them.
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

// writable returns the pod without what the API server gives it. Without a
// resourceVersion, an update of it is one of whatever is there.
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

// each calls write with every pod, up to parallelism at a time, until one fails.
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

// clientFor returns a client that speaks protobuf, is not slowed down, and
// makes its requests as the program that managedFields shall name.
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
