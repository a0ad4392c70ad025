package server_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// What public pages, and pages about the mirror itself, show to which caller.
func TestPublicPages(t *testing.T) {
	cp := controlplane.Shared(t)
	r := guarded(t, cp, options{})
	r.as("admin-token", "/configmaps")
	for path, codes := range map[string][3]int{ // nobody, known, admin; 0: others see to that
		"/healthz":                     {200, 200, 200},
		"/livez":                       {200, 200, 200},
		"/readyz":                      {200, 200, 200},
		"/":                            {200, 200, 200},
		"/metrics":                     {401, 403, 200},
		"/clusters":                    {401, 200, 200},
		"/clusters/test":               {401, 200, 200},
		"/clusters/elsewhere":          {401, 404, 404},
		"/version":                     {401, 0, 0},
		"/apis":                        {401, 0, 0},
		"/openapi/v3":                  {401, 0, 0},
		"/clusters/test/api/v1/things": {401, 403, 404},
	} {
		eventually(t, "it is ready", func() bool { return r.get("/readyz").code == http.StatusOK })
		for i, token := range []string{"", "nobody-token", "admin-token"} {
			a := r.as(token, path)
			if a.code != codes[i] && codes[i] != 0 {
				t.Errorf("%s as %q: %d %s", path, token, a.code, a.body)
			}
			said := string(a.body)
			if token != "admin-token" && strings.Contains(said, `"objects":`) {
				t.Errorf("%s as %q tells what is mirrored: %s", path, token, said)
			}
			if token == "" && (strings.Contains(said, "Clusters:") || strings.Contains(said, `"test"`)) {
				t.Errorf("%s tells nobody the clusters: %s", path, said)
			}
		}
	}
	if a := r.as("nobody-token", "/clusters/test"); strings.Contains(string(a.body), "objects") || !strings.Contains(string(a.body), "available") {
		t.Errorf("who is known and no more: %s", a.body)
	}
	if a := r.as("wrong", "/readyz?verbose"); a.code != http.StatusOK || strings.Contains(string(a.body), "secrets") {
		t.Errorf("a probe with a token of nobody's: %d %s", a.code, a.body)
	}
	if a := r.as("admin-token", "/readyz?verbose"); !strings.Contains(string(a.body), "secrets") {
		t.Errorf("an administrator: %s", a.body)
	}
	if a := r.as("admin-token", "/pods?labelSelector="+url.QueryEscape("a=b")); a.code != http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
}
