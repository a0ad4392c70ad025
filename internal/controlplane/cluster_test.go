//go:build unix

package controlplane

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func TestMain(m *testing.M) { Main(m) }

func TestSharedIsOneCluster(t *testing.T) {
	if first, second := Shared(t), Shared(t); first != second {
		t.Errorf("two calls of Shared returned clusters at %s and %s, want one", first.URL(), second.URL())
	}
}

func TestProgramsCanBeMeasured(t *testing.T) {
	c := Shared(t)
	for _, program := range []string{"etcd", "kube-apiserver"} {
		if c.PID(program) == 0 {
			t.Errorf("no process id of %s", program)
		}
	}
	if pid := c.PID("kube-scheduler"); pid != 0 {
		t.Errorf("process id %d of a program that does not run", pid)
	}
	if logs := c.Logs(); !strings.Contains(logs, "==> kube-apiserver <==\n") {
		t.Errorf("the logs do not have those of the API server:\n%s", tail([]byte(logs)))
	}
}

// Custom resources are the only kind that can be added to a running cluster.
func TestCustomResource(t *testing.T) {
	c := Shared(t)
	apply := func(manifest string) {
		t.Helper()
		cmd := c.KubectlCommand(t.Context(), c.Kubeconfig(Admin), "apply", "--filename=-")
		cmd.Stdin = strings.NewReader(manifest)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("kubectl apply: %v\n%s", err, out)
		}
	}
	kubectl := func(args ...string) string {
		t.Helper()
		stdout, _, err := c.Kubectl(t.Context(), Admin, args...)
		if err != nil {
			t.Fatal(err)
		}
		return stdout
	}

	apply(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: lamps, singular: lamp, kind: Lamp}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)
	kubectl("wait", "--for=condition=Established", "customresourcedefinition/lamps.example.com")
	apply(`{apiVersion: example.com/v1, kind: Lamp, metadata: {name: hall, namespace: default}, spec: {watts: 8}}`)
	if got := kubectl("get", "lamps", "--namespace=default", "--output=jsonpath={.items[*].spec.watts}"); got != "8" {
		t.Errorf("kubectl read watts %q from a custom resource, want 8", got)
	}
}

// coreClient returns a client of the core group.
func coreClient(t *testing.T, config *rest.Config) *rest.RESTClient {
	t.Helper()
	client, err := clientFor(config, corev1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// createConfigMap creates a config map with a unique name in the namespace
// default.
func createConfigMap(t *testing.T, c *Cluster) *corev1.ConfigMap {
	t.Helper()
	created := &corev1.ConfigMap{}
	err := coreClient(t, c.AdminConfig()).Post().Namespace("default").Resource("configmaps").
		Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}).
		Do(t.Context()).Into(created)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func getConfigMap(t *testing.T, c *Cluster, name string) *corev1.ConfigMap {
	t.Helper()
	got := &corev1.ConfigMap{}
	err := coreClient(t, c.AdminConfig()).Get().Namespace("default").Resource("configmaps").Name(name).
		Do(t.Context()).Into(got)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
