package samplepods

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestLoad(t *testing.T) {
	list := Load()
	if len(list.Items) != 5000 {
		t.Fatalf("%d pods, want 5000", len(list.Items))
	}
	replicas := map[string]int{}
	for _, pod := range list.Items {
		replicas[pod.Namespace+"/"+pod.OwnerReferences[0].Name]++
		if pod.Status.Phase != corev1.PodRunning || len(pod.ManagedFields) != 2 {
			t.Errorf("%s/%s is %s with %d managedFields, want it running with 2",
				pod.Namespace, pod.Name, pod.Status.Phase, len(pod.ManagedFields))
		}
	}
	if len(replicas) != recordedApps {
		t.Errorf("%d ReplicaSets, want %d", len(replicas), recordedApps)
	}
	for name, n := range replicas {
		if n != recordedReplicas {
			t.Errorf("%d pods of ReplicaSet %s, want %d", n, name, recordedReplicas)
		}
	}
}

func TestLoadReturnsACopy(t *testing.T) {
	Load().Items[0].Labels["app"] = "changed"
	if got := Load().Items[0].Labels["app"]; got == "changed" {
		t.Error("a change to loaded pods shows in the next Load")
	}
}
