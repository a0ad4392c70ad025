package clientgo_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestMutationDetector runs itself in processes whose environment asks for
// client-go's mutation detector, which looks once a second and panics.
func TestMutationDetector(t *testing.T) {
	const child = "TIDINGS_TEST_MUTATION"
	if os.Getenv(child) != "" {
		onBoth(t, cache.SharedIndexInformerOptions{}, func(r *rig) {
			r.source.Add(pod("a", "1"))
			r.run()
			r.inf.GetStore().List()[0].(*corev1.Pod).Spec.NodeName = "mine"
			time.Sleep(5 * time.Second)
		})
		return
	}
	for _, k := range kinds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMutationDetector$/^"+k.name+"$")
		cmd.Env = append(os.Environ(), child+"=1", "KUBE_CACHE_MUTATION_DETECTOR=true")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "ALTERED!") || !strings.Contains(string(out), "panic: cache *v1.Pod modified") {
			t.Errorf("%s: the process ended with %v and\n%s", k.name, err, out)
		}
	}
}
