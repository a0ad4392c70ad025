package apipath_test

import (
	"testing"

	"github.com/tidings-io/tidings/internal/apipath"
)

// TestPathIs checks that a path is matched by exactly one Path.
func TestPathIs(t *testing.T) {
	pods := apipath.Path{Version: "v1", Resource: "pods", Namespace: "a"}
	one := apipath.Path{Version: "v1", Resource: "pods", Namespace: "a", Name: "p"}
	all := apipath.Path{Group: "apps", Version: "v1", Resource: "deployments"}
	itself := apipath.Path{Version: "v1", Resource: "namespaces", Namespace: "a", Name: "a"}
	for _, c := range []struct {
		path    apipath.Path
		written string
		want    string // empty: it is another one
	}{
		{pods, "/api/v1/namespaces/a/pods", "plain"},
		{pods, "/api/v1/namespaces/a/pods///", "plain"},
		{pods, "/api/v1/watch/namespaces/a/pods", "watch"},
		{pods, "/api/v1/namespaces/a//pods", ""},
		{pods, "/api/v1/namespaces//pods", ""},
		{pods, "//api/v1/namespaces/a/pods", ""},
		{pods, "api/v1/namespaces/a/pods", ""},
		{pods, "/api/v1/namespaces/a/pods/p", ""},
		{one, "/api/v1/namespaces/a/pods/p", "plain"},
		{one, "/api/v1/namespaces/a/pods/p/status", ""},
		{all, "/apis/apps/v1/deployments", "plain"},
		{all, "/apis/apps/v1/namespaces//deployments", "no namespace"},
		{all, "/apis/apps/v1/watch/deployments", "watch"},
		{all, "/apis/apps/watch/v1/deployments", ""},
		{all, "/", ""},
		{itself, "/api/v1/namespaces/a", "plain"},
		{itself, "/api/v1/namespaces/a/namespaces/a", ""},
	} {
		spelling, ok := c.path.Is(c.written)
		got := ""
		switch {
		case !ok:
		case spelling.Watch:
			got = "watch"
		case spelling.NoNamespace:
			got = "no namespace"
		default:
			got = "plain"
		}
		if got != c.want {
			t.Errorf("%s is read as %+v %q, want %q", c.written, c.path, got, c.want)
		}
	}
}
