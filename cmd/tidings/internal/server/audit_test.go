package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/audit"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// auditFile is what an audit log has written.
type auditFile struct {
	log *audit.Log

	mu      sync.Mutex
	content bytes.Buffer
	err     error
}

func (f *auditFile) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	return f.content.Write(p)
}

func (f *auditFile) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.content.String()
}

// newAuditFile returns the audit log for a server that is started after the call, and
// so ends before the log does.
func newAuditFile(t *testing.T) *auditFile {
	f := &auditFile{}
	f.log = audit.New(f, audit.Options{Logger: quiet})
	t.Cleanup(func() {
		if err := f.log.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return f
}

func parseEvents(t *testing.T, content string) (out []auditv1.Event) {
	t.Helper()
	for line := range strings.Lines(content) {
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		var e auditv1.Event
		if err := decoder.Decode(&e); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		out = append(out, e)
	}
	return out
}

// of waits for the end of the request with a user agent, and returns its events.
func (f *auditFile) of(t *testing.T, agent string) (events []auditv1.Event) {
	t.Helper()
	return eventsOf(t, agent, f.String)
}

func eventsOf(t *testing.T, agent string, content func() string) (events []auditv1.Event) {
	t.Helper()
	eventually(t, "the request "+agent+" is in the audit log", func() bool {
		events = slices.DeleteFunc(parseEvents(t, content()), func(e auditv1.Event) bool { return e.UserAgent != agent })
		return len(events) > 0 && (events[len(events)-1].Stage == auditv1.StageResponseComplete || events[len(events)-1].ResponseStatus.Code == http.StatusUnauthorized)
	})
	return events
}

// summary is what kube-apiserver and the mirror say alike about a request.
func summary(e auditv1.Event) string {
	users := fmt.Sprintf("%s %v", e.User.Username, e.User.Groups)
	if i := e.ImpersonatedUser; i != nil {
		users += fmt.Sprintf(" as %s %v", i.Username, i.Groups)
	}
	ref := "nothing"
	if r := e.ObjectRef; r != nil {
		ref = fmt.Sprintf("%s/%s/%s/%s/%s/%s", r.APIGroup, r.APIVersion, r.Resource, r.Namespace, r.Name, r.Subresource)
	}
	stage := e.Stage
	if e.ResponseStatus.Code == http.StatusUnauthorized {
		stage = "" // kube-apiserver says ResponseStarted
	}
	return fmt.Sprintf("%s %s %s %s by %s of %s: %d %s %q", e.Level, stage, e.Verb, e.RequestURI, users, ref, e.ResponseStatus.Code,
		e.Annotations["authorization.k8s.io/decision"], e.Annotations["authorization.k8s.io/reason"])
}

// The audit log says of a request what the API server's own audit log says of the same
// request to the API server.
func TestAuditLogIsTheAPIServersOwn(t *testing.T) {
	dir := t.TempDir()
	policy, theirLog := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(`{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cp := controlplane.Start(t, controlplane.WithAPIServerFlags("--audit-policy-file="+policy, "--audit-log-path="+theirLog))
	newAPI(t, cp.AdminConfig()).do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"one"}}`)
	ours := newAuditFile(t)
	r := guarded(t, cp, options{server: server.Options{Audit: ours.log}})
	plain := withoutCredentials(t, cp)
	const cm = "/api/v1/namespaces/default/configmaps"
	for i, q := range []struct {
		token, path string
		headers     http.Header
		rest        string // the same as a REST route
	}{
		{"admin-token", cm + "/one", nil, "/core/v1/configmaps/default/one"},
		{"admin-token", cm, nil, "/core/v1/configmaps/default"},
		{"admin-token", cm + "?labelSelector=a%3Db&limit=5", nil, ""},
		{"admin-token", "/api/v1/nodes", nil, "/nodes"},
		{"admin-token", "/api/v1/namespaces/default", nil, "/core/v1/namespaces/default"},
		{"admin-token", "/apis/apps/v1/deployments?resourceVersion=0", nil, ""},
		{"admin-token", cm + "?watch=true&timeoutSeconds=1", nil, ""},
		{"admin-token", cm + "?fieldSelector=metadata.name%3Done", nil, ""},
		{"admin-token", cm + "/none", nil, "/core/v1/configmaps/default/none"},
		{"admin-token", "/version", nil, ""},
		{"admin-token", "/apis", nil, ""},
		{"admin-token", cm, http.Header{"Impersonate-User": {"eve"}, "Impersonate-Group": {"system:masters"}}, "/core/v1/configmaps/default"},
		{"admin-token", cm, http.Header{"Impersonate-User": {"eve"}}, "/core/v1/configmaps/default"},
		{"namespaced-user-token", "/api/v1/namespaces/" + controlplane.Namespace + "/secrets", nil, ""},
		{"namespaced-user-token", cm, nil, "/core/v1/configmaps/default"},
		{"nobody-token", cm + "/one", nil, "/core/v1/configmaps/default/one"},
		{"nobody-token", "/api/v1/secrets?watch=true", nil, "/secrets?watch=true"},
		{"nobody-token", cm, http.Header{"Impersonate-User": {"admin"}}, ""},
		{"wrong", cm + "/one", nil, ""},
	} {
		paths := []string{q.path}
		if q.rest != "" {
			paths = append(paths, q.rest)
		}
		var want []string
		for j, path := range append([]string{q.path}, paths...) {
			client, base, content := r.client, r.url, ours.String
			if j == 0 {
				client, base = plain, cp.URL()
				content = func() string { return readAll(t, theirLog) }
			}
			agent := fmt.Sprintf("audit-%d-%d", i, j)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
			r.must(err)
			req.Header = q.headers.Clone()
			if req.Header == nil {
				req.Header = http.Header{}
			}
			req.Header.Set("Authorization", "Bearer "+q.token)
			req.Header.Set("User-Agent", agent)
			resp, err := client.Do(req)
			r.must(err)
			_, err = io.Copy(io.Discard, resp.Body)
			r.must(err)
			resp.Body.Close()
			var got []string
			for _, e := range eventsOf(t, agent, content) {
				if e.Stage == auditv1.StageResponseStarted && e.ResponseStatus.Code == http.StatusForbidden {
					continue // kube-apiserver says twice that a watch is refused
				}
				if path == q.rest {
					e.RequestURI = q.path // each has its own
				}
				got = append(got, summary(e))
				if j > 0 && (e.Annotations["tidings.io/cluster"] != "test" || !slices.Equal(e.SourceIPs, []string{"127.0.0.1"}) || e.RequestReceivedTimestamp.IsZero() || e.StageTimestamp.Before(&e.RequestReceivedTimestamp) || e.User.Extra != nil) {
					t.Errorf("%+v", e)
				}
			}
			if j == 0 {
				want = got
			} else {
				same(t, agent+" "+path, got, want)
			}
		}
	}

	// A difference between two objects has read both.
	for query, want := range map[string]int{"with=two": 2, "with=one": 1, "from=now": 0} {
		agent := "difference-" + query
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+"/core/v1/configmaps/default/one?diff=true&"+query, nil)
		r.must(err)
		req.Header.Set("Authorization", "Bearer admin-token")
		req.Header.Set("User-Agent", agent)
		r.do(req)
		var names []string
		ids := map[types.UID]bool{}
		eventually(t, "both are in the audit log", func() bool {
			names = nil
			for _, e := range ours.of(t, agent) {
				if e.Annotations["authorization.k8s.io/decision"] == "allow" {
					names, ids[e.AuditID] = append(names, e.ObjectRef.Namespace+"/"+e.ObjectRef.Name), true
				}
			}
			return len(names) >= want
		})
		if all := []string{"default/one", "default/two"}; !slices.Equal(names, all[:want]) || len(ids) > 1 {
			t.Errorf("%s: %q are in the audit log, with %d IDs", query, names, len(ids))
		}
	}

	// A request that is handed on has the same ID in the cluster's log.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.url+cm, strings.NewReader(`{"metadata":{"name":"written"},"data":{"k":"canary-content"}}`))
	r.must(err)
	req.Header.Set("Authorization", "Bearer admin-token")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "handed-on")
	if a := r.do(req); a.code != http.StatusCreated {
		t.Fatalf("%d %s", a.code, a.body)
	}
	one := ours.of(t, "handed-on")[0]
	two := eventsOf(t, "handed-on", func() string { return readAll(t, theirLog) })[0]
	if one.AuditID != two.AuditID || one.Annotations["tidings.io/forwarded"] != "true" || one.Verb != "create" || one.ResponseStatus.Code != 201 {
		t.Errorf("%+v\n%+v", one, two)
	}
	if text := ours.String(); strings.Contains(text, "canary-content") || strings.Contains(text, "-token") {
		t.Errorf("content or a token is in %s", text)
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content[:bytes.LastIndexByte(content, '\n')+1]) // whole lines
}

// Whatever way a request takes, it has one event, and a watch two.
func TestAuditLogOfEveryWayIn(t *testing.T) {
	f := newAuditFile(t)
	r, who := guardedDemo(t, options{server: server.Options{Audit: f.log, MaxWatchesPerCaller: 1}})
	r.set("team", "one", "canary-content")
	_, err := r.cluster.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "s"}, Data: map[string][]byte{"k": []byte("canary-content")}})
	r.must(err)
	who.grant(true, "alice", "team", "get", "list", "watch")
	who.grant(true, "alice", "/metrics", "get")
	ask := func(token, path string, headers ...string) (int, auditv1.Event) {
		t.Helper()
		agent := fmt.Sprintf("way %s %s", token, path)
		agent = strings.ReplaceAll(agent, "-token", "")
		a := r.as(token, path, append(headers, "User-Agent", agent)...)
		events := f.of(t, agent)
		if len(events) != 1 || events[0].ResponseStatus.Code != int32(a.code) {
			t.Errorf("%s: %d, %+v", agent, a.code, events)
		}
		return a.code, events[0]
	}
	for path, want := range map[string]string{
		"/core/v1/configmaps/team/one":             "200 get alice team/one allow",
		"/clusters/test/core/v1/configmaps/team":   "200 list alice team/ allow",
		"/core/v1/configmaps/default":              "403 list alice default/ forbid",
		"/api/v1/namespaces/team/secrets/s":        "403 get alice team/s allow", // which are not mirrored
		"/metrics":                                 "200 get alice / allow",
		"/clusters":                                "200 get alice / allow",
		"/readyz":                                  "200 get alice / ",
		"/nonsense/of/a/path/that/is/too/long":     "404 get  / ",
		"/clusters/other/pods":                     "404 get  / ",
		"/nothing":                                 "403 get alice / ",
		"/api/v1/namespaces/team/configmaps/one/x": "405 get alice team/one allow", // which is not answered here
	} {
		code, e := ask("alice-token", path)
		ref := "/"
		if e.ObjectRef != nil {
			ref = e.ObjectRef.Namespace + "/" + e.ObjectRef.Name
		}
		if got := fmt.Sprintf("%d %s %s %s %s", code, e.Verb, e.User.Username, ref, e.Annotations["authorization.k8s.io/decision"]); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if code, e := ask("alice-token", "/configmaps?visible=true"); code != 200 || e.Annotations["tidings.io/namespaces"] != "team" || e.Annotations["authorization.k8s.io/decision"] != "" {
		t.Errorf("%d %+v", code, e)
	}
	if code, e := ask("bob-token", "/configmaps?visible=true"); code != 200 || e.Annotations["tidings.io/namespaces"] != "" {
		t.Errorf("%d %+v", code, e)
	}

	// A watch, and the one too many, which names its caller.
	es := &eventSource{rig: r, url: r.url + "/core/v1/configmaps/team?watch=true", token: "alice-token"}
	es.connect()
	if m, err := es.next(); err != nil || m.Type != "ADDED" {
		t.Fatal(m, err)
	}
	var started []auditv1.Event
	eventually(t, "the beginning of the watch is in the audit log", func() bool { // which is written beside the answer
		started = slices.DeleteFunc(parseEvents(t, f.String()), func(e auditv1.Event) bool { return e.Stage != auditv1.StageResponseStarted })
		return len(started) > 0
	})
	if len(started) != 1 || started[0].Verb != "watch" || started[0].ResponseStatus.Code != 200 || started[0].ObjectRef.Namespace != "team" {
		t.Fatalf("%+v", started)
	}
	if code, e := ask("alice-token", "/core/v1/configmaps/team?watch=true"); code != http.StatusTooManyRequests || e.User.Username != "alice" {
		t.Errorf("%d %+v", code, e)
	}
	es.close()
	eventually(t, "the end of the watch is in the audit log", func() bool {
		return slices.ContainsFunc(parseEvents(t, f.String()), func(e auditv1.Event) bool {
			return e.AuditID == started[0].AuditID && e.Stage == auditv1.StageResponseComplete && e.ResponseStatus.Code == 200
		})
	})

	// A WebSocket.
	eventually(t, "the watch has left its seat", func() bool {
		return !strings.Contains(string(r.as("alice-token", "/metrics").body), "tidings_http_watches 1")
	})
	config, err := websocket.NewConfig(strings.Replace(r.url, "http", "ws", 1)+"/api/v1/namespaces/team/configmaps?watch=true&timeoutSeconds=100", r.url)
	r.must(err)
	config.Header = http.Header{"Authorization": {"Bearer alice-token"}, "User-Agent": {"socket"}}
	conn, err := config.DialContext(t.Context())
	r.must(err)
	var m string
	r.must(websocket.Message.Receive(conn, &m))
	r.must(conn.Close())
	if events := f.of(t, "socket"); len(events) != 2 || events[0].ResponseStatus.Code != 101 || events[0].Stage != auditv1.StageResponseStarted || events[1].ResponseStatus.Code != 101 || events[1].User.Username != "alice" {
		t.Errorf("%+v", events)
	}

	// What everybody may see is nobody's read.
	lines := func() int { return strings.Count(f.String(), "\n") } // they are there before they are counted
	before := lines()
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/"} {
		r.get(path)
	}
	ask("alice-token", "/clusters?last")
	if n := lines() - before; n != 1 {
		t.Errorf("%d events: %s", n, f.String())
	}
	if text := f.String(); strings.Contains(text, "canary-content") || strings.Contains(text, "-token") {
		t.Errorf("content or a token is in %s", text)
	}
}

// Tokens are in no event, wherever a client puts them, and a flood of strangers is
// bounded.
func TestAuditLogHasNoTokens(t *testing.T) {
	f := newAuditFile(t)
	r, who := guardedDemo(t, options{server: server.Options{Audit: f.log}})
	who.grant(true, "alice", "*", "list")
	const token = "alice-token"
	for _, path := range []string{
		"/configmaps?access_token=" + token, "/configmaps?labelSelector=" + token, "/configmaps?labels[" + token + "]=x", "/configmaps?" + token, "/" + token, "/configmaps?limit=1;x=" + token,
		"/api/v1/configmaps?token=" + token + "&limit=1", "/api/v1/configmaps?fieldSelector=metadata.name%3D" + token, "/api/v1/namespaces/x/pods/p/exec?command=mysql&command=-psecret-canary",
		"/api/v1/namespaces/x/services/s/proxy/?continue=secret-canary", "/clusters/" + token + "/pods", "/configmaps?x=secret-canary",
	} {
		r.as(token, path, "User-Agent", "Bearer "+token, "X-Forwarded-For", "203.0.113.9", "Audit-ID", "forged-id")
	}
	r.as(token, "/configmaps?labelSelector=a%0Ab", "User-Agent", "a\u009b31m\u2028"+strings.Repeat("x", 5000))
	const flood = 400
	begun := time.Now()
	for range flood {
		r.as("invented-canary", "/configmaps")
	}
	seconds := int(time.Since(begun).Seconds()) + 1
	counted := func() (total int, lines int) {
		for _, e := range parseEvents(t, f.String()) {
			if e.ResponseStatus.Code != 401 {
				continue
			}
			n := 1
			if text := e.Annotations[audit.AnnotationRequests]; text != "" {
				_, err := fmt.Sscan(text, &n)
				r.must(err)
			}
			total += n
			lines++
		}
		return total, lines
	}
	r.must(r.stop())
	r.must(f.log.Close(t.Context()))
	// 100 are written at once and 10 a second, and the number of the others every 10 seconds and at the end.
	if total, lines := counted(); total < flood || lines > 100+10*seconds+seconds/10+2 {
		t.Errorf("%d requests in %d lines, in %d seconds", total, lines, seconds)
	}
	text := f.String()
	for _, canary := range []string{token, "canary", "203.0.113.9", "forged-id", "psecret"} {
		if i := strings.Index(text, canary); i >= 0 {
			t.Errorf("%q is in %q", canary, text[max(0, i-300):min(len(text), i+100)])
		}
	}
	for _, says := range []string{"TRUNCATED", `\u009b31m`, "[redacted]", `"requestURI":"/api/v1/configmaps?limit=1"`} {
		if !strings.Contains(text, says) {
			t.Errorf("it lacks %q", says)
		}
	}
}

// A disk that fails stops no request, and is told of.
func TestAuditLogThatFails(t *testing.T) {
	f := newAuditFile(t)
	f.err = errors.New("no space left on device")
	r := start(t, options{server: server.Options{Audit: f.log}})
	if a := r.get("/configmaps"); a.code != http.StatusOK {
		t.Fatalf("%d %s", a.code, a.body)
	}
	eventually(t, "the event is lost", func() bool { return f.log.Status().Failed == 1 })
	if a := r.get("/readyz?verbose"); a.code != http.StatusOK || !strings.Contains(string(a.body), "[+]audit-log ok: it cannot be written: no space left on device; 1 events are missing\n") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if body := string(r.get("/metrics").body); !strings.Contains(body, "tidings_audit_failing 1\n") || !strings.Contains(body, `tidings_audit_lost_total{because="write"} 1`) {
		t.Error(body)
	}
}
