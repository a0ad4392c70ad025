package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// A continue token, or a version to read or watch from, is of no use to a caller
// without the right.
func TestNothingLeaksByResumePoints(t *testing.T) {
	cp := controlplane.Shared(t)
	const ns, name = "leak-pages", "same-name"
	l, away := withCanaries(guarded(t, cp, options{}), cp, ns, name)
	defer away()
	for _, path := range []string{
		"/api/v1/secrets", "/clusters/test/api/v1/configmaps", "/secrets", "/clusters/test/core/v1/configmaps",
	} {
		_, said := l.checked(http.MethodGet, path+"?limit=1", "admin-token")
		_, body, _ := strings.Cut(said, "{")
		var page struct {
			Metadata                  struct{ ResourceVersion, Continue string }
			ResourceVersion, Continue string
		}
		if err := json.Unmarshal([]byte("{"+body), &page); err != nil {
			t.Fatalf("%s: %v: %s", path, err, said)
		}
		version, token := page.ResourceVersion+page.Metadata.ResourceVersion, url.QueryEscape(page.Continue+page.Metadata.Continue)
		if version == "" || token == "" {
			t.Fatalf("%s: there is no next page: %s", path, said)
		}
		queries := []string{"limit=1&continue=" + token, "continue=" + token, "watch=true&since=" + version, "watch=true&since=1"}
		if strings.Contains(path, "/api/") {
			queries = []string{
				"limit=1&continue=" + token, "continue=" + token,
				"resourceVersion=" + version + "&resourceVersionMatch=Exact", "resourceVersion=" + version + "&resourceVersionMatch=NotOlderThan", "resourceVersion=" + version + "&limit=1",
				"resourceVersion=1&resourceVersionMatch=Exact", "watch=true&resourceVersion=" + version, "watch=true&resourceVersion=1",
				"watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=" + version,
			}
		}
		for _, query := range queries {
			for who, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "nobody-token": http.StatusForbidden, "namespaced-user-token": http.StatusForbidden} {
				for _, accept := range encodings {
					if code := l.ask(http.MethodGet, path+"?"+query, accept, who); code != want {
						t.Errorf("%s?%s as %q, %s: %d", path, query, who, accept, code)
					}
				}
			}
		}
	}
}
