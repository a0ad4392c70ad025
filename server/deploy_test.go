package server_test

import (
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/server"
)

// The rights of deploy/rbac.yaml are enough for a mirror of everything, and no
// more.
func TestTheRightsThatAreDeployed(t *testing.T) {
	cp := controlplane.Start(t)
	if out, err := cp.KubectlCommand(t.Context(), cp.Kubeconfig(controlplane.Admin), "apply", "-f", "../deploy/rbac.yaml").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	admin := newAPI(t, cp.AdminConfig())
	token := admin.do("POST", "/api/v1/namespaces/tidings/serviceaccounts/tidings/token", `{"spec":{}}`)["status"].(map[string]any)["token"].(string)
	config := rest.CopyConfig(cp.NobodyConfig())
	config.BearerToken = token
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	r := serve(t, nil, config, options{server: server.Options{Gate: gate}, mirror: mirror.Options{Resources: []string{mirror.Everything, "secrets"}}})
	eventually(t, "the rights have come into force", func() bool {
		return r.as("admin-token", "/pods").code == http.StatusOK
	})
	resources, err := r.mirror.Resources(t.Context(), "")
	r.must(err)
	if len(resources) < 40 {
		t.Errorf("only %d resources: %v", len(resources), resources)
	}
	for _, res := range resources {
		want := http.StatusOK
		if res.String() == "secrets" {
			want = http.StatusForbidden
		}
		if a := r.as("admin-token", "/"+res.Versioned()); a.code != want || want != 200 && !strings.Contains(a.Error, "system:serviceaccount:tidings:tidings") {
			t.Errorf("%s: %d %s", res, a.code, a.body)
		}
		if a := r.as("nobody-token", "/"+res.Versioned()); a.code != http.StatusForbidden || strings.Contains(a.Error, "tidings") {
			t.Errorf("%s, for nobody: %d %s", res, a.code, a.body)
		}
	}
	if a := r.as("namespaced-user-token", "/core/v1/pods/team-a?source=live"); a.code != http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
	out, err := cp.KubectlCommand(t.Context(), cp.Kubeconfig(controlplane.Admin), "auth", "can-i", "get", "configmap/extension-apiserver-authentication", "-n", "kube-system", "--as=system:serviceaccount:tidings:tidings").CombinedOutput()
	if err != nil {
		t.Errorf("the authorities of client certificates: %v %s", err, out)
	}
}
