package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// A server that is short of memory refuses requests that need much of it, and says so.
func TestShortOfMemory(t *testing.T) {
	r := start(t, options{server: server.Options{MemoryLimit: 1}})
	r.set("shop", "a", "1")
	r.set("shop", "b", "1")
	for path, refused := range map[string]bool{
		"/cm?watch=true":                true,
		"/api/v1/configmaps?watch=true": true,
		"/cm":                           true,
		"/cm?limit=1000":                true,
		"/core/v1/configmaps/shop":      true,
		"/api/v1/configmaps":            true,
		"/api/v1/namespaces/shop/configmaps?limit=0":   true,
		"/api/v1/configmaps?limit=1&resourceVersion=0": true,
		"/cm?limit=1":                                            false,
		"/api/v1/configmaps?limit=500":                           false,
		"/core/v1/configmaps/shop/a":                             false,
		"/api/v1/namespaces/shop/configmaps/a":                   false,
		"/api/v1/namespaces/shop/configmaps/a?resourceVersion=0": false,
		"/apis":    false,
		"/healthz": false,
	} {
		a := r.get(path)
		if !refused {
			if a.code != http.StatusOK {
				t.Errorf("%s: %d %s", path, a.code, a.body)
			}
			continue
		}
		if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), "memory is short") {
			t.Errorf("%s: %d %s %s", path, a.code, a.header, a.body)
		}
	}
	metrics := string(r.get("/metrics").body)
	for _, line := range []string{"tidings_memory_limit_bytes 1\n", `tidings_memory_short_total{of="requests"} 6` + "\n", `tidings_memory_short_total{of="watches"} 2` + "\n"} {
		if !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if a := r.get("/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(string(a.body), "[+]memory ok: ") || !strings.Contains(string(a.body), "new watches are refused") {
		t.Errorf("readyz: %d %s", a.code, a.body)
	}
}

func TestEnoughMemory(t *testing.T) {
	r := start(t, options{server: server.Options{MemoryLimit: 1 << 40}})
	r.set("shop", "a", "1")
	es := r.eventSource("/cm?watch=true")
	defer es.close()
	if a := r.get("/cm"); a.code != http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
	for _, line := range []string{"tidings_answers_budget_bytes 2.74877906944e+11\n", "tidings_answers_budget_used_bytes 0\n", "tidings_answers_refused_total 0\n"} {
		if metrics := string(r.get("/metrics").body); !strings.Contains(metrics, line) {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if a := r.get("/readyz?verbose"); !strings.Contains(string(a.body), "[+]memory ok: 0 % of 1048576 MB are in use\n") {
		t.Errorf("readyz: %s", a.body)
	}
}
