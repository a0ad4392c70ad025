package server_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// slow delays the first list of nodes, and with it all requests for nodes.
func slow(until <-chan struct{}) fakeapi.Injector {
	return func(req *fakeapi.Request) *fakeapi.Fault {
		if req.Resource.Resource == "nodes" {
			return &fakeapi.Fault{Until: until}
		}
		return nil
	}
}

func TestOneCallerLeavesRoomForOthers(t *testing.T) {
	release := make(chan struct{})
	r, who := guardedDemo(t, options{fault: slow(release), server: server.Options{MaxRequests: 3, MaxWatches: 3, MaxRequestsPerCaller: 2, MaxWatchesPerCaller: 2}})
	for _, user := range []string{"alice", "bob"} {
		who.grant(true, user, "*", "list", "watch", "get")
		who.grant(true, user, "/metrics", "get")
	}
	metric := func(line string) bool { return strings.Contains(string(r.as("bob-token", "/metrics").body), line+"\n") }
	limited := func(a answer, whose string) {
		t.Helper()
		if a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || !strings.Contains(a.Error, whose) {
			t.Errorf("%d %s %s", a.code, a.header, a.body)
		}
	}
	// Watches: alice has as many as one may have, then all have as many as all.
	first, second := r.eventSourceAs("/cm?watch=true", "alice-token"), r.eventSourceAs("/cm?watch=true", "alice-token")
	limited(r.as("alice-other-token", "/cm?watch=true"), "one caller") // which is no other caller's
	third := r.eventSourceAs("/cm?watch=true", "bob-token")
	limited(r.as("bob-token", "/cm?watch=true"), "3 watches")
	for _, line := range []string{
		"tidings_http_watches 3", "tidings_http_callers 2", `tidings_http_limited_total{for="caller",of="watches"} 1`, `tidings_http_limited_total{for="all",of="watches"} 1`,
	} {
		if !metric(line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	for _, w := range []*eventSource{first, second, third} {
		w.close()
	}
	eventually(t, "the watches are forgotten", func() bool { return metric("tidings_http_watches 0") && metric("tidings_http_callers 1") })

	answers := make(chan answer)
	for range 2 {
		go func() { answers <- r.as("alice-token", "/nodes") }()
	}
	eventually(t, "two requests wait", func() bool { return metric("tidings_http_requests_in_flight 3") }) // and this one
	limited(r.as("alice-other-token", "/cm"), "one caller")
	if a := r.as("bob-token", "/cm"); a.code != http.StatusOK {
		t.Errorf("bob: %d %s", a.code, a.body)
	}
	if a := r.get("/healthz"); a.code != http.StatusOK {
		t.Errorf("healthz: %d %s", a.code, a.body)
	}
	close(release)
	for range 2 {
		if a := <-answers; a.code != http.StatusOK {
			t.Errorf("%d %s", a.code, a.body)
		}
	}
}

func TestRequestTimeout(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	r := start(t, options{fault: slow(release), server: server.Options{RequestTimeout: 100 * time.Millisecond}})
	if a := r.get("/nodes"); a.code != http.StatusGatewayTimeout || a.header.Get("Retry-After") == "" || a.Reason != "Timeout" {
		t.Errorf("%d %s", a.code, a.body)
	}
	w := r.eventSource("/cm?watch=true") // which is no such request
	w.expect("SYNCED")
	eventually(t, "time has passed", func() bool { return r.get("/nodes").code == http.StatusGatewayTimeout })
	v := r.set("default", "one", "1")
	w.expect("ADDED default/one@" + v)
}

// A web page without credentials of its own must not read with the rights of its
// visitor's machine or certificate.
func TestWebSocketsOfOtherOrigins(t *testing.T) {
	r := start(t, options{})
	for _, c := range []struct {
		origin, protocol string
		want             int
	}{
		{"http://elsewhere.example", "", http.StatusForbidden},
		{"null", "", http.StatusForbidden},
		{r.url, "", http.StatusSwitchingProtocols},
		// A token that is not checked is no reason to trust the page.
		{"http://elsewhere.example", "base64url.bearer.authorization.k8s.io.eA, base64.channel.k8s.io", http.StatusForbidden},
		{"http://elsewhere.example", "base64url.bearer.authorization.k8s.io.eA", http.StatusForbidden},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/api/v1/pods?watch=true", nil)
		r.must(err)
		for name, value := range map[string]string{
			"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Origin": c.origin,
		} {
			req.Header.Set(name, value)
		}
		if c.protocol != "" {
			req.Header.Set("Sec-WebSocket-Protocol", c.protocol)
		}
		resp, err := r.client.Do(req)
		r.must(err)
		if resp.StatusCode != c.want {
			t.Errorf("%q with %q: %s", c.origin, c.protocol, resp.Status)
		}
		resp.Body.Close()
	}
}
