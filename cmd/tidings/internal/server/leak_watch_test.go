package server_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// handshake returns the headers of a WebSocket from a page of the server's own origin.
func (r *rig) handshake(header ...string) []string {
	return append(header, "Origin", r.url, "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==")
}

// A watch over a WebSocket is opened for callers with the right and for no others, also
// right after one was opened.
func TestNothingLeaksOverWebSockets(t *testing.T) {
	cp := controlplane.Shared(t)
	const ns, name = "leak-sockets", "same-name"
	l, away := withCanaries(guarded(t, cp, options{}), cp, ns, name)
	defer away()
	callers := map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "nobody-token": http.StatusForbidden, "namespaced-user-token": http.StatusForbidden}
	var group errgroup.Group
	group.SetLimit(8)
	for _, resource := range []string{"secrets", "configmaps"} {
		for _, path := range []string{
			"/api/v1/" + resource + "?watch=true", "/api/v1/watch/" + resource,
			"/api/v1/namespaces/" + ns + "/" + resource + "?watch=true", "/api/v1/watch/namespaces/" + ns + "/" + resource + "/" + name,
			"/api/v1/" + resource + "?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=",
		} {
			for _, prefix := range []string{"", "/clusters/test"} {
				for _, accept := range encodings {
					group.Go(func() error {
						path := prefix + path
						until := "" // in other forms it may be that a text is not to be found
						if accept == "*/*" {
							until = "canary-annotation"
						}
						code, said := l.responseUntil(until, http.MethodGet, path, "admin-token", l.handshake("Accept", accept)...)
						if code == http.StatusSwitchingProtocols && accept == "*/*" && !strings.Contains(said, "canary-annotation") {
							t.Errorf("%s: the test's own objects are not there: %.300s", path, said)
						}
						if accept == "*/*" && code != http.StatusSwitchingProtocols {
							t.Errorf("%s: %d", path, code)
						}
						protocol := func(token string) []string { // as a page says it
							return l.handshake("Accept", accept, "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io."+base64.RawURLEncoding.EncodeToString([]byte(token))+", base64.binary.k8s.io")
						}
						if by, _ := l.response(http.MethodGet, path, "", protocol("admin-token")...); by != code {
							t.Errorf("%s as the administrator by subprotocol, %s: %d and not %d", path, accept, by, code)
						}
						for token, want := range callers {
							if code, _ := l.checked(http.MethodGet, path, token, l.handshake("Accept", accept)...); code != want {
								t.Errorf("%s as %q, %s: %d", path, token, accept, code)
							}
							if code, _ := l.checked(http.MethodGet, path, "", protocol(token)...); code != want {
								t.Errorf("%s as %q by subprotocol, %s: %d", path, token, accept, code)
							}
						}
						return nil
					})
				}
			}
		}
	}
	_ = group.Wait()
}

// A request without the right gets nothing from a resource that is mirrored on first
// use, and does not start its mirror.
func TestNothingIsMirroredWithoutRight(t *testing.T) {
	cp := controlplane.Shared(t)
	r := guarded(t, cp, options{})
	admin := newAPI(t, cp.AdminConfig())
	const resource, at = "podtemplates", "/api/v1/namespaces/default/podtemplates"
	admin.do("POST", at, `{"metadata":{"name":"first"},"template":{"spec":{"containers":[{"name":"c","image":"canary-4711"}]}}}`)
	defer admin.do("DELETE", at+"/first", "")
	l := &leaks{rig: r, canaries: []string{canary}}
	mirrored := func() bool {
		for _, c := range r.mirror.Status().Clusters {
			for _, res := range c.Resources {
				if res.Resource.Resource == resource {
					return true
				}
			}
		}
		return false
	}
	for _, path := range []string{
		at, at + "/first", at + "?watch=true", "/api/v1/watch/" + resource, "/api/v1/" + resource + "?resourceVersion=0", "/clusters/test/api/v1/" + resource + "?limit=1",
		"/" + resource, "/" + resource + "?watch=true", "/" + resource + "?source=live", "/core/v1/" + resource + "/default/first",
	} {
		for token, want := range map[string]int{"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "nobody-token": http.StatusForbidden, "namespaced-user-token": http.StatusForbidden} {
			for _, accept := range encodings {
				if code := l.ask(http.MethodGet, path, accept, token); code != want {
					t.Errorf("%s as %q, %s: %d", path, token, accept, code)
				}
			}
		}
	}
	if mirrored() {
		t.Error("who may not see it has had it mirrored")
	}
	if code, said := l.checked(http.MethodGet, at+"/first", "admin-token"); code != http.StatusOK || !strings.Contains(said, canary) || !mirrored() {
		t.Errorf("who may see it: %d %s", code, said)
	}
}
