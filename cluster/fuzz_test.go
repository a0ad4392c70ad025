package cluster_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// FuzzDiscovery has a server say anything about what it serves. What comes of it
// can be found, or an error says why not.
func FuzzDiscovery(f *testing.F) {
	const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	const groups = `{"kind":"APIGroupList","groups":[{"name":"x.io","versions":[{"groupVersion":"x.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"x.io/v1","version":"v1"}}]}`
	const resources = `{"groupVersion":"x.io/v1","resources":[{"name":"pods","kind":"Pod","namespaced":true,"verbs":["list","watch"]}]}`
	for _, seed := range [][3]string{
		{"application/json", groups, resources}, {"application/json", groups, `{}`}, {"application/json", ``, ``}, {"application/json", `null`, `null`}, {"application/json", `{"groups":[null]}`, resources},
		{"application/json", groups, `{"resources":[{"name":"","kind":"","verbs":["list","watch"]},{"name":"a/b/c","verbs":["list","watch"]},{"name":"../..","kind":"K","verbs":["list","watch"]}]}`},
		{"application/json", `{"groups":[{"name":"../../api","versions":[{"groupVersion":"a/b/c/d","version":"v1"}]}]}`, resources},
		{"application/json", strings.Repeat(`{"groups":[`, 20_000), resources}, {"application/json", groups, strings.Repeat("[", 100_000)},
		{aggregated, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"x.io"},"versions":[{"version":"v1","resources":[{"resource":"pods","responseKind":{"kind":"Pod"},"scope":"Namespaced","verbs":["list","watch"]}]}]}]}`, resources},
		{aggregated, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"versions":[{"resources":[{"resource":"pods","responseKind":null}]}]}]}`, resources},
		{aggregated, `{"items":5}`, resources}, {"application/vnd.kubernetes.protobuf", "k8s\x00\xff", resources}, {"text/html", "<html>", resources},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, mediaType, groups, resources string) {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", strings.Map(func(r rune) rune {
				if r < ' ' || r >= 0x7f {
					return -1
				}
				return r
			}, mediaType))
			if r.URL.Path == "/api" || r.URL.Path == "/apis" {
				_, _ = io.WriteString(w, groups)
				return
			}
			_, _ = io.WriteString(w, resources)
		}))
		defer srv.Close()
		c, err := cluster.New("test", &rest.Config{Host: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all, _ := c.Resources(t.Context()) // perhaps not all
		for _, r := range all {
			again, err := c.Resolve(t.Context(), r.Versioned())
			if r.Resource != "" && !strings.ContainsAny(r.Resource+r.Version+r.Group, ". /") && r.Version != "" && err != nil {
				t.Errorf("%q is there, and is not found: %v, %v", r.Versioned(), again, err)
			}
		}
		if _, err := c.Resolve(t.Context(), "pods"); err != nil && err.Error() == "" {
			t.Error("an error that says nothing")
		}
	})
}
