package server_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// health returns the health of each cluster in /clusters.
func (r *rig) health(token string) map[string]string {
	r.Helper()
	var clusters []struct{ Name, Health string }
	r.must(json.Unmarshal(r.as(token, "/clusters").Data, &clusters))
	out := map[string]string{}
	for _, c := range clusters {
		out[c.Name] = c.Health
	}
	return out
}

// While the API server is down, callers that it has accepted before keep their rights,
// others get none, and readiness says what is true.
func TestOutageOfTheAPIServer(t *testing.T) {
	gate, err := access.NewGate(access.Options{AllowTTL: 100 * time.Millisecond, DenyTTL: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	cp := controlplane.Start(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(cp.KillAPIServer(t.Context()))
	r := serve(t, nil, cp.AdminConfig(), options{server: server.Options{Gate: gate}})
	const known, denied, unknown = "admin-token", "nobody-token", "invented-token"
	expect := func(what string, token string, want map[string]int) {
		t.Helper()
		for path, code := range want {
			if a := r.as(token, path); a.code != code {
				t.Errorf("%s, %s: %s: %d %s, want %d", what, token, path, a.code, a.body, code)
			}
		}
	}

	eventually(t, "a start without an API server is logged", func() bool { return strings.Contains(r.log.String(), "cannot connect") })
	expect("before the first connection", "", map[string]int{"/readyz": 503, "/clusters/test/readyz": 503, "/readyz?exclude=fresh": 503, "/healthz": 200})

	must(cp.StartAPIServer(t.Context()))
	eventually(t, "it is ready", func() bool { return r.get("/readyz").code == http.StatusOK })
	reads := map[string]int{"/api/v1/configmaps?resourceVersion=0": 200, "/configmaps": 200, "/metrics": 200, "/clusters": 200}
	// A fresh API server refuses everybody until it has read its own rules.
	eventually(t, "the caller is known", func() bool { return r.as(known, "/metrics").code == 200 && r.as(known, "/configmaps").code == 200 })
	expect("connected", known, reads)
	expect("connected", denied, map[string]int{"/configmaps": 403, "/clusters": 200})

	must(cp.KillAPIServer(t.Context()))
	eventually(t, "it is not ready", func() bool { return r.get("/readyz").code == http.StatusServiceUnavailable })
	eventually(t, "grace is used", func() bool {
		return strings.Contains(string(r.as(known, "/metrics").body), `tidings_access_reviews_total{about="right",cluster="test",outcome="grace"}`) &&
			!strings.Contains(string(r.as(known, "/metrics").body), `tidings_access_reviews_total{about="right",cluster="test",outcome="grace"} 0`)
	})
	expect("cut", known, reads)
	expect("cut", known, map[string]int{"/readyz": 503, "/readyz?exclude=fresh": 200, "/healthz": 200, "/api/v1/configmaps": 503, "/configmaps?source=live": 503})
	for path, says := range map[string]string{"/readyz": "[-]fresh/test failed: connection lost ", "/readyz?exclude=fresh&verbose": "[+]fresh/test excluded: ok", "/clusters": `"connection lost `} {
		if a := r.as(known, path); !strings.Contains(string(a.body), says) {
			t.Errorf("%s lacks %q: %s", path, says, a.body)
		}
	}
	if got := r.health(known)["test"]; got != "failing" {
		t.Errorf("/clusters says %q", got)
	}
	for _, token := range []string{denied, unknown} {
		expect("cut", token, map[string]int{"/api/v1/configmaps?resourceVersion=0": 503, "/configmaps": 503, "/metrics": 503, "/readyz": 503, "/healthz": 200})
		if a := r.as(token, "/readyz?verbose"); string(a.body) != "readyz check failed\n" {
			t.Errorf("%s sees %s", token, a.body)
		}
	}
	expect("cut", unknown, map[string]int{"/clusters": 503})
	if a := r.get("/metrics"); a.code != http.StatusUnauthorized {
		t.Errorf("without credentials: %d", a.code)
	}

	must(cp.StartAPIServer(t.Context()))
	eventually(t, "it is ready again", func() bool { return r.get("/readyz").code == http.StatusOK })
	eventually(t, "fresh reads are answered", func() bool { return r.as(known, "/api/v1/configmaps").code == http.StatusOK })
	eventually(t, "an unknown caller is refused", func() bool { return r.as(unknown, "/metrics").code == http.StatusUnauthorized })
	log := r.log.String()
	for line, n := range map[string]int{`msg="connection lost`: 1, `msg="connected again" cluster=test after=`: 1, "msg=connected cluster=test": 1} {
		if got := strings.Count(log, line); got != n {
			t.Errorf("%s is logged %d times, want %d:\n%s", line, got, n, log)
		}
	}
}

// A cluster that is lost takes no other out of service.
func TestOutageOfOneOfSeveralClusters(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Resources: []string{"pods", "configmaps", "services"}}})
	other := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(other)
	t.Cleanup(stop)
	r.must(r.mirror.Set(t.Context(), map[string]*rest.Config{"test": r.config, "other": config}))
	ready := func(path string) bool { return r.get(path).code == http.StatusOK }
	eventually(t, "both are ready", func() bool { return ready("/clusters/test/readyz") && ready("/clusters/other/readyz") })
	if body := string(r.get("/readyz?verbose").body); !strings.Contains(body, "[+]clusters ok: 2 of 2 are ready\n") {
		t.Error(body)
	}

	other.SetDown(true)
	eventually(t, "the loss is noticed", func() bool {
		return strings.Contains(string(r.get("/readyz?verbose").body), "[-]fresh/other failed: connection lost ")
	})
	if a := r.get("/readyz"); a.code != http.StatusOK || string(a.body) != "ok" {
		t.Errorf("with one of two: %d %s", a.code, a.body)
	}
	body := string(r.get("/readyz?verbose").body)
	for _, line := range []string{"[+]clusters ok: 1 of 2 are ready\n", "[+]cluster/other ok\n", "[+]fresh/test ok\n", "[+]mirror/other/pods.v1 ok\n", "readyz check passed\n"} {
		if !strings.Contains(body, line) {
			t.Errorf("lacks %q:\n%s", line, body)
		}
	}
	if got := r.health(""); got["test"] != "ok" || got["other"] != "failing" {
		t.Errorf("/clusters: %v", got)
	}
	if !ready("/clusters/other/readyz?exclude=fresh") || !ready("/readyz?exclude=cluster/other&exclude=mirror") {
		t.Error("what is excluded counts")
	}

	r.cluster.SetDown(true)
	eventually(t, "none is ready", func() bool { return !ready("/readyz") })
	if !ready("/readyz?exclude=fresh") {
		t.Error("there is nothing to answer with")
	}
	other.SetDown(false)
	eventually(t, "one is ready again", func() bool { return ready("/readyz") && ready("/clusters/other/readyz") })
	// The log has one line for a cluster, not one for each resource.
	for line, want := range map[string]int{`msg="connection lost; trying until it is back" cluster=other`: 1, `msg="connected again" cluster=other after=`: 1, `msg="connection lost; trying until it is back" cluster=test`: 1} {
		if got := strings.Count(r.log.String(), line); got != want {
			t.Errorf("%s: %d, want %d", line, got, want)
		}
	}
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "resource=") {
			t.Errorf("a warning of a resource: %s", line)
		}
	}
}

// A named resource that is not watched, though the cluster is connected, is not fresh.
func TestUnwatchedResourceIsNotReady(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Resources: []string{"configmaps", mirror.Everything}}})
	eventually(t, "it is ready", func() bool { return r.get("/readyz").code == http.StatusOK })
	if a := r.get("/pods"); a.code != http.StatusOK {
		t.Fatal(string(a.body))
	}
	unwatched := func(resource string) (mend func()) {
		mend = r.cluster.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Verb == "watch" && req.Resource.Resource == resource {
				return fakeapi.StatusFault(apierrors.NewInternalError(errors.New("no watches")))
			}
			return nil
		})
		r.cluster.SetDown(true) // ends the watch that is open
		r.cluster.SetDown(false)
		return mend
	}
	mend := unwatched("pods")
	eventually(t, "pods are known not to be watched", func() bool { return r.health("")["test"] == "degraded" })
	if a := r.get("/readyz"); a.code != http.StatusOK {
		t.Errorf("a resource that nobody named: %d %s", a.code, a.body)
	}
	mend()
	mend = unwatched("configmaps")
	eventually(t, "config maps are known not to be watched", func() bool {
		a := r.get("/readyz")
		return a.code == http.StatusServiceUnavailable && strings.Contains(string(a.body), "[+]fresh/test ok\n[-]fresh/test/configmaps.v1 failed: not watched for ")
	})
	if got := r.health("")["test"]; got != "failing" {
		t.Errorf("/clusters says %q", got)
	}
	mend()
	eventually(t, "it is mended", func() bool { return r.get("/readyz").code == http.StatusOK })
}
