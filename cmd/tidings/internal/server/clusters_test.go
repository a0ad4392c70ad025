package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Each of several clusters reviews its own callers, and gets no token that is meant for
// another.
func TestEachClusterReviewsItsOwnCallers(t *testing.T) {
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	newCluster := func(alice fakeapi.User) (*fakeapi.Cluster, *rest.Config) {
		c := fakeapi.New(fakeapi.Options{
			Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": alice},
			Allow: func(u fakeapi.User, a fakeapi.Access) bool { return u.Name == "mirror" || u.Name == "alice" },
		})
		config, stop := fakeapi.InProcess(c)
		t.Cleanup(stop)
		config.BearerToken = "mirror-token"
		return c, config
	}
	const far = "arn:aws:eks:far:1:cluster/prod" // a name with a slash in it, as there are
	near, nearConfig := newCluster(fakeapi.User{Name: "alice"})
	distant, farConfig := newCluster(fakeapi.User{Name: "another"})
	r := serve(t, near, nearConfig, options{server: server.Options{Gate: gate}, mirror: mirror.Options{Default: "test"}})
	clusters := map[string]*rest.Config{"test": nearConfig, far: farConfig}
	r.must(r.mirror.Set(t.Context(), clusters))
	r.set("default", "near-one", "1")

	eventually(t, "it is ready", func() bool { return r.get("/readyz").code == http.StatusOK })
	reviews := authenticationv1.SchemeGroupVersion.WithResource("tokenreviews")
	for path, want := range map[string]int{"/cm": 200, "/metrics": 200, "/clusters": 200, "/readyz": 200, "/clusters/test/cm": 200, "/api/v1/pods": 200} {
		if a := r.as("alice-token", path); a.code != want {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if n := distant.Count("create", reviews); n != 0 {
		t.Errorf("a token was shown %d times to a cluster that was not asked about", n)
	}
	for _, at := range []string{"/clusters/" + far, "/clusters/" + strings.ReplaceAll(far, "/", "%2F")} {
		for path, want := range map[string]int{"/cm": 403, "": 200, "/core/v1/configmaps/default/near-one": 403, "/api/v1/configmaps": 403, "/apis/apps/v1/namespaces/x/deployments?watch=true": 403} {
			if a := r.as("alice-token", at+path); a.code != want || want == 403 && !strings.Contains(string(a.body), "another") {
				t.Errorf("%s: %d %s", at+path, a.code, a.body)
			}
		}
	}
	if n := distant.Count("create", reviews); n != 1 {
		t.Errorf("%d TokenReviews in the cluster that was asked about", n)
	}

	// One that takes another's name has its own answers.
	r.must(r.mirror.Set(context.Background(), map[string]*rest.Config{"test": farConfig}))
	if a := r.as("alice-token", "/cm"); a.code != http.StatusForbidden {
		t.Errorf("what the cluster before had allowed: %d %s", a.code, a.body)
	}

	// Without a default cluster no rights on the mirror itself can be reviewed.
	other := farConfig
	r.must(r.mirror.Set(context.Background(), map[string]*rest.Config{"a": nearConfig, "b": other}))
	for path, want := range map[string]int{"/metrics": 403, "/clusters": 403, "/cm": 400, "/healthz": 200} {
		if a := r.as("alice-token", path); a.code != want || strings.Contains(string(a.body), `"a"`) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}
