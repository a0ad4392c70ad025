package server_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

func TestHealth(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Resources: []string{"pods", "gizmos"}}})
	eventually(t, "pods are mirrored", func() bool { return strings.Contains(string(r.get("/readyz").body), "[+]mirror/test/pods.v1 ok\n") })
	for path, want := range map[string]string{
		"/healthz": "ok", "/livez": "ok", "/clusters/test/healthz": "ok", "/clusters/test/livez": "ok",
		"/livez?verbose":                                      "[+]ping ok\nlivez check passed\n",
		"/readyz?exclude=mirror/test/gizmos":                  "ok",
		"/clusters/test/readyz?exclude=mirror/gizmos":         "ok",
		"/clusters/test/readyz?exclude=mirror/gizmos&verbose": "[+]ping ok\n[+]shutdown ok\n[+]cluster ok\n[+]fresh ok\n[+]mirror/gizmos excluded: ok\n[+]mirror/pods.v1 ok\nreadyz check passed\n",
	} {
		if a := r.get(path); a.code != http.StatusOK || string(a.body) != want {
			t.Errorf("%s: %d %q, want %q", path, a.code, a.body, want)
		}
	}
	for _, path := range []string{"/readyz", "/clusters/test/readyz"} {
		a := r.get(path)
		if a.code != http.StatusServiceUnavailable || !strings.Contains(string(a.body), "gizmos failed: ") || !strings.HasSuffix(string(a.body), "readyz check failed\n") || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
	for _, path := range []string{"/clusters/nowhere/healthz", "/clusters/nowhere/readyz"} {
		if a := r.get(path); a.code != http.StatusNotFound || !strings.Contains(string(a.body), "nowhere") || !slices.Equal(a.Exists, []string{"test"}) {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
}

// With authentication, the health of an unknown cluster does not reveal which clusters
// exist.
func TestHealthNamesNoClusters(t *testing.T) {
	r, _ := guardedDemo(t, options{})
	for _, page := range []string{"healthz", "livez", "readyz"} {
		if a := r.get("/clusters/test/" + page); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", page, a.code, a.body)
		}
		for _, header := range [][]string{nil, {"Authorization", "Bearer invented"}, {"Authorization", "Bearer alice-token"}} {
			a := r.get("/clusters/nowhere/"+page, header...)
			if a.code != http.StatusNotFound || len(a.Exists) != 0 || strings.Contains(string(a.body), "test") {
				t.Errorf("%s, %s: %d %s", page, header, a.code, a.body)
			}
		}
	}
}
