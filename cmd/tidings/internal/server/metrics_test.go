package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// shows reports whether /metrics has each line, from its beginning.
func (r *rig) shows(token string, lines ...string) (missing []string) {
	r.Helper()
	body := "\n" + string(r.as(token, "/metrics").body)
	for _, l := range lines {
		if !strings.Contains(body, "\n"+l) {
			missing = append(missing, l)
		}
	}
	return missing
}

func TestMetrics(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Resources: []string{"cm", "gizmos", mirror.Everything}}, server: server.Options{Version: "v1.2.3", Revision: "abc"}})
	r.set("default", "a", "1")
	r.get("/cm")
	r.get("/podz")
	w := r.eventSource("/cm?watch=true")
	w.expect("ADDED default/a@5", "SYNCED")
	const configMaps = `{cluster="test",group="",resource="configmaps",resource_namespace="",version="v1"} `
	missing := r.shows("",
		`tidings_informer_objects`+configMaps+"1\n", `tidings_informer_synced`+configMaps+"1\n", `tidings_informer_relists_total`+configMaps+"0\n",
		`tidings_informer_bytes{cluster="test",`, `tidings_informer_events_total{cluster="test",`, `tidings_informer_watches_total{`, `tidings_informer_phase{cluster="test",`,
		`tidings_informer_errors_total{`, `tidings_informer_lag_events{`, `tidings_informer_last_contact_timestamp_seconds{`,
		`tidings_cluster_resources{cluster="test"}`, `tidings_cluster_up{cluster="test"} 1`,
		`tidings_http_requests_total{code="200",method="GET",route="/{resource}"} 1`,
		`tidings_http_requests_total{code="404",method="GET",route="/{resource}"} 1`,
		`tidings_http_watches 1`, `tidings_build_info{goversion="go1.`, `go_goroutines`,
	)
	if len(missing) > 0 {
		t.Errorf("%q is missing in\n%s", missing, r.get("/metrics").body)
	}
	if body := string(r.get("/metrics").body); !strings.Contains(body, `revision="abc",version="v1.2.3"} 1`) {
		t.Errorf("the build is not in\n%s", body)
	}
}

func TestAClusterIsUp(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Resources: []string{mirror.Everything}}})
	if body := string(r.get("/metrics").body); strings.Contains(body, "tidings_cluster_up{") {
		t.Errorf("nothing is known of the cluster yet:\n%s", body)
	}
	r.get("/cm")
	up := func(want string) func() bool {
		return func() bool { return len(r.shows("", `tidings_cluster_up{cluster="test"} `+want+"\n")) == 0 }
	}
	eventually(t, "it is up", up("1"))
	r.cluster.SetDown(true)
	eventually(t, "it is down", up("0"))
	r.cluster.SetDown(false)
	eventually(t, "it is up again", up("1"))
}

// The latency is told by what was asked for, as far as it exists. No caller can make
// another label.
func TestLabelsOfRequestsAreBounded(t *testing.T) {
	r, who := guardedDemo(t, options{})
	who.grant(true, "alice", "*", "get", "list", "watch")
	who.grant(true, "alice", "/metrics", "get")
	r.set("default", "a", "1")
	for _, path := range []string{
		"/cm", "/core/v1/configmaps/default/a", "/api/v1/namespaces/default/configmaps/a", "/api/v1/configmaps", "/apis/apps/v1/deployments", "/api/v1/configmaps?watch=true&timeoutSeconds=1",
		"/invented-a", "/api/v1/invented-b", "/apis/invented-c/v1/invented-d", "/api/v1/namespaces/invented-e/configmaps/a/invented-f", "/invented-g/invented-h", "/clusters/invented-i/cm",
	} {
		r.as("alice-token", path)
		r.as("bob-token", path)
		r.as("nobody", path)
	}
	for _, method := range []string{"POST", "INVENTED-J"} {
		for _, path := range []string{"/cm", "/api/v1/namespaces/default/configmaps", "/api/v1/invented-k"} {
			status(t, r.client, method, r.url+path, "alice-token")
		}
	}
	body := string(r.as("alice-token", "/metrics").body)
	for what, want := range map[string]int{
		`code="200",group="",resource="configmaps",verb="list"`:      2,
		`code="200",group="",resource="configmaps",verb="get"`:       2,
		`code="403",group="",resource="configmaps",verb="list"`:      2,
		`code="403",group="",resource="configmaps",verb="get"`:       2 + 1, // and a subresource
		`code="200",group="apps",resource="deployments",verb="list"`: 1,
	} {
		if line := fmt.Sprintf("\ntidings_http_request_duration_seconds_count{%s} %d\n", what, want); !strings.Contains(body, line) {
			t.Errorf("%s is missing", line)
		}
	}
	for _, line := range strings.Split(body, "\n") {
		if strings.Contains(strings.ToLower(line), "invented") || strings.Contains(line, "_seconds_count") && strings.Contains(line, `code="401"`) && !strings.Contains(line, `resource=""`) || strings.Contains(line, `verb="watch"`) {
			t.Errorf("a caller has made %s", line)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}
