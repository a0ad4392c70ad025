package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// A resource whose definition is deleted and comes back with another scope has two
// histories. Both are read by its name, with the rights to the resource as it is now.
func TestAResourceThatIsDefinedAgain(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	kept := remember(t, options{})
	r := guarded(t, cp, kept)
	const definitions, kites = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/again.example.com/v1"
	served := func() bool {
		resp, err := admin.client.Get(admin.base + kites + "/kites")
		r.must(err)
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	}
	define := func(scope string) {
		t.Helper()
		admin.do("POST", definitions, fmt.Sprintf(`{"metadata":{"name":"kites.again.example.com"},"spec":{"group":"again.example.com","scope":%q,
			"names":{"plural":"kites","singular":"kite","kind":"Kite"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, scope))
		eventually(t, "the definition is served", served)
	}
	create := func(path, name string) {
		t.Helper()
		admin.do("POST", kites+path+"/kites", fmt.Sprintf(`{"apiVersion":"again.example.com/v1","kind":"Kite","metadata":{"name":%q}}`, name))
	}
	recorded := func(want string) time.Time {
		t.Helper()
		eventually(t, "the history has "+want, func() bool {
			r.as("admin-token", "/kites") // begins the mirror
			a := r.as("admin-token", "/kites?at=-0s")
			return a.code == http.StatusOK && strings.Join(a.names(), " ") == want
		})
		return time.Now()
	}
	rules := `[{"apiGroups":["again.example.com"],"verbs":["get","list","watch"],"resources":["kites"]}]`
	for _, ns := range []string{"again-a", "again-b"} {
		admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	}
	in := admin.serviceAccount("again-a", "in-again", rules, "again-a")
	everywhere := admin.serviceAccount("again-a", "everywhere-again", rules, "")

	define("Namespaced")
	create("/namespaces/again-a", "zero")
	recorded("again-a/zero")
	create("/namespaces/again-a", "one")
	create("/namespaces/again-b", "two")
	before := recorded("again-a/one again-a/zero again-b/two")
	version := r.as("admin-token", "/kites?at=-0s").ResourceVersion
	admin.do("DELETE", definitions+"/kites.again.example.com", "")
	eventually(t, "the definition is gone", func() bool { return !served() })
	r.must(r.stop()) // a mirror that goes on would go on with the history, too
	r.must(r.mirror.Close(t.Context()))
	define("Cluster")
	r = guarded(t, cp, kept)
	create("", "one")
	recorded("one")
	create("", "three")
	recorded("one three")

	at := "at=" + url.QueryEscape(before.Format(time.RFC3339Nano))
	for _, query := range []string{at, "at=" + version} {
		same(t, query, r.as(everywhere, "/kites?"+query).names(), []string{"again-a/one", "again-a/zero", "again-b/two"})
		if a := r.as(in, "/kites?"+query); a.code != http.StatusForbidden {
			t.Errorf("with the right in one namespace, %s is answered %d %s", query, a.code, a.body)
		}
		if a := r.as(in, "/again.example.com/v1/kites/one?"+query); a.code != http.StatusForbidden {
			t.Errorf("with the right in one namespace, one object at %s is answered %d %s", query, a.code, a.body)
		}
	}
	page := r.as(everywhere, "/kites?limit=1&"+at)
	rest := r.as(everywhere, "/kites?continue="+page.Continue)
	same(t, "pages", append(page.names(), rest.names()...), []string{"again-a/one", "again-a/zero", "again-b/two"})

	changes := func(path string) (found []string, next string) {
		t.Helper()
		a := r.as(everywhere, path)
		var list []struct{ Type, Namespace, Name string }
		if err := json.Unmarshal(a.Data, &list); err != nil || a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, a.code, a.body)
		}
		if !strings.Contains(string(a.body), "the resource was mirrored again") && a.Continue == "" {
			t.Errorf("%s: the gap is not told: %s", path, a.body)
		}
		for _, c := range list {
			found = append(found, strings.TrimSpace(c.Type+" "+strings.TrimPrefix(c.Namespace+"/"+c.Name, "/")))
		}
		return found, a.Continue
	}
	whole, _ := changes("/kites?changes=true")
	same(t, "the newest changes", whole[max(0, len(whole)-2):], []string{"ADDED one", "ADDED three"})
	if !slices.Contains(whole, "ADDED again-b/two") || !slices.Contains(whole, "DELETED again-b/two") {
		t.Errorf("the changes before are not told: %v", whole)
	}
	var paged []string
	for path := "/kites?changes=true&limit=1"; path != ""; {
		found, next := changes(path)
		paged = append(paged, found...)
		if path = ""; next != "" {
			path = "/kites?changes=true&limit=1&continue=" + next
			if a := r.as(in, path); a.code != http.StatusForbidden {
				t.Errorf("with the token of another, the changes are answered %d %s", a.code, a.body)
			}
		}
	}
	same(t, "the changes in pages", paged, whole)
	if a := r.as(in, "/kites?changes=true"); a.code != http.StatusForbidden {
		t.Errorf("with the right in one namespace, the changes are answered %d %s", a.code, a.body)
	}
}
