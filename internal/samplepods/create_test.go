//go:build unix

package samplepods

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
)

const parallelism = 16

func TestCreate(t *testing.T) {
	config := controlplane.Start(t).AdminConfig()
	pods := Clone(120, seed)

	if err := Create(t.Context(), config, pods, parallelism); err != nil {
		t.Fatal(err)
	}
	for i, got := range listPods(t, config) {
		want := pods[i]
		want.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable}
		if diff := cmp.Diff(asWritten(want), asWritten(got)); diff != "" {
			t.Fatalf("a created pod differs (-want +got):\n%s", diff)
		}
	}

	if err := WriteStatus(t.Context(), config, pods, parallelism); err != nil {
		t.Fatal(err)
	}
	for i, got := range listPods(t, config) {
		want := pods[i]
		if diff := cmp.Diff(asWritten(want), asWritten(got)); diff != "" {
			t.Fatalf("a pod with its status written differs (-want +got):\n%s", diff)
		}
		var managers []string
		for _, entry := range got.ManagedFields {
			managers = append(managers, entry.Manager)
		}
		if want := []string{"kube-controller-manager", "kwok"}; !slices.Equal(managers, want) {
			t.Errorf("managedFields are of %q, want %q as in the recording", managers, want)
		}
	}

	if err := Create(t.Context(), config, pods[:1], parallelism); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create a pod that exists: %v, want AlreadyExists", err)
	}
}

func TestCreateStopsWithItsContext(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"} // gets no request
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := WriteStatus(ctx, config, Clone(3, seed), parallelism); !errors.Is(err, context.Canceled) {
		t.Errorf("WriteStatus with a context that has ended: %v, want %v", err, context.Canceled)
	}
}

// listPods lists all pods, which are in etcd's order.
func listPods(t *testing.T, config *rest.Config) []corev1.Pod {
	t.Helper()
	client, err := clientFor(config, "test")
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.PodList{}
	if err := client.Get().Resource("pods").Do(t.Context()).Into(list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// asWritten returns a pod without the metadata that the API server assigns.
func asWritten(pod corev1.Pod) corev1.Pod {
	pod.UID, pod.ResourceVersion, pod.CreationTimestamp, pod.ManagedFields = "", "", metav1.Time{}, nil
	return pod
}
