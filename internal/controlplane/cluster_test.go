//go:build unix

package controlplane

import (
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

func TestKubectl(t *testing.T) {
	c := Shared(t)
	stdout, _, err := c.Kubectl(t.Context(), Admin, "get", "namespaces", "--output=name")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"namespace/default\n", "namespace/" + Namespace + "\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("kubectl get namespaces printed %q, want %q in it", stdout, want)
		}
	}
	if _, _, err := c.Kubectl(t.Context(), Nobody, "get", "namespaces"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("kubectl get namespaces as nobody: %v, want it forbidden", err)
	}
}
