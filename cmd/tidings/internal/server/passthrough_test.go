package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// The cluster authorizes each forwarded request: a denial that the mirror has cached
// does not outlive a new right. Requests that the mirror answers stay guarded.
func TestClusterAuthorizesForwardedRequests(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	gate, err := access.NewGate(access.Options{DenyTTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	r := serve(t, nil, cp.AdminConfig(), options{
		mirror: mirror.Options{Resources: []string{mirror.Everything, "secrets"}},
		server: server.Options{Gate: gate, Passthrough: true},
	})
	const ns = "handed-on"
	admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	token := admin.serviceAccount(ns, "writer", "", "")
	plain := withoutCredentials(t, cp)
	send := func(client *http.Client, base, method, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		r.must(err)
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", "application/merge-patch+json")
		}
		resp, err := client.Do(req)
		r.must(err)
		resp.Body.Close()
		return resp.StatusCode
	}
	one, all := "/api/v1/namespaces/"+ns+"/configmaps/one", "/api/v1/namespaces/"+ns+"/configmaps"
	const body = `{"metadata":{"name":"one"}}`
	requests := []struct {
		method, path, body   string
		refused, then, given int // without the right, answered here, or with it
	}{
		{"POST", all, body, 403, 0, 201},
		{"PUT", one, body, 403, 0, 200},
		{"PATCH", one, `{"data":{"a":"b"}}`, 403, 0, 200},
		{"HEAD", one, "", 403, 0, 405},
		{"GET", "/api/v1/namespaces/" + ns + "/pods/none/log", "", 403, 0, 404},
		{"GET", "/api/v1/namespaces/" + ns + "/pods/none/status", "", 403, 0, 404},
		{"GET", one, "", 403, 403, 0},
		{"GET", all, "", 403, 403, 0},
		{"GET", all + "?watch=true", "", 403, 403, 0},
		{"GET", "/core/v1/configmaps/" + ns, "", 403, 403, 0},
		{"DELETE", one, "", 403, 0, 200},
	}
	for _, q := range requests {
		for _, at := range []string{"", "/clusters/test"} {
			if code := send(r.client, r.url, q.method, at+q.path, q.body); code != q.refused {
				t.Errorf("without the right: %s %s: %d", q.method, at+q.path, code)
			}
		}
	}
	admin.do("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/roles", `{"metadata":{"name":"writer"},"rules":[{"apiGroups":[""],"verbs":["*"],"resources":["configmaps","pods/log","pods/status"]}]}`)
	admin.do("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings", fmt.Sprintf(`{"metadata":{"name":"writer"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"writer"},"subjects":[{"kind":"ServiceAccount","name":"writer","namespace":%q}]}`, ns))
	eventually(t, "the right is known to the cluster", func() bool { return send(plain, cp.URL(), "GET", all, "") == http.StatusOK })
	for _, q := range requests {
		if code := send(r.client, r.url, q.method, q.path, q.body); code != q.then+q.given {
			t.Errorf("with the right: %s %s: %d, want %d", q.method, q.path, code, q.then+q.given)
		}
	}
}
