package server_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/logbook"
)

// kubernetesPaths are the Kubernetes API paths that lead to an object; each also under
// /clusters/{cluster}.
var kubernetesPaths = []string{
	"/api/{version}/{resource}",
	"/api/{version}/watch/{resource}",
	"/api/{version}/namespaces/{namespace}/{resource}",
	"/api/{version}/watch/namespaces/{namespace}/{resource}",
	"/api/{version}/namespaces/{namespace}/{resource}/{name}",
	"/api/{version}/watch/namespaces/{namespace}/{resource}/{name}",
	"/api/{version}/namespaces/{namespace}/{resource}/{name}/status",
	"/api/{version}/proxy/namespaces/{namespace}/{resource}/{name}",
}

// strayPaths lead elsewhere when they are cleaned: from a public path to one that needs
// a right.
var strayPaths = []string{
	"/openapi/v3/../../api/v1/{resource}", "/openapi/v3/%2e%2e/%2e%2e/api/v1/{resource}", "/openapi/v3/..%2f..%2fapi/v1/{resource}",
	"/openapi/v3/.%2e/../api/v1/namespaces/{namespace}/{resource}/{name}", "/openapi/v3/x%2f..%2f..%2f..%2fapi%2fv1%2f{resource}",
	"/version/../api/v1/{resource}", "/apis/../api/v1/{resource}", "/api/v1/../v1/{resource}", "/api/v1/namespaces/{namespace}/pods/../{resource}",
	"/api/v1/namespaces/team-a/configmaps/../../{namespace}/{resource}", "/core/v1/pods/../{resource}", "/core/v1/configmaps/team-a/..%2f..%2f{namespace}%2f{resource}",
	"//api/v1/{resource}", "/api//v1/{resource}", "/clusters/test/openapi/v3/../../api/v1/{resource}", "/healthz/../api/v1/{resource}", "/clusters/../api/v1/{resource}",
}

// encodings are Accept headers.
var encodings = []string{
	"*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor",
	"application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch", "text/event-stream", "text/html",
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
	"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}

var queries = []string{
	"", "watch=true", "source=live", "limit=1", "labelSelector=leak%3Dyes", "fieldSelector=metadata.name%3Dsame-name", "resourceVersion=0",
	"watch=true&source=live", "watch=true&since=1", "watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=",
	"visible=true", "visible=true&watch=true", "visible=false", "namespace={namespace}", "nonsense=1",
	"window=true", "window=true&visible=true", "window=true&columns=*&filter=canary&sort=Name", "window=true&namespace={namespace}&count=1",
	"table=true", "table=true&visible=true&group=Name", "table=true&namespace={namespace}&columns=*&filter=canary&sort=Name", "name={name}&namespace={namespace}", "changes=true&folded=true&since=1", "name={name}&namespace={namespace}&tree=true&neighbours=true",
}

// leaks collects the responses to callers without a right.
type leaks struct {
	*rig
	canaries []string
	requests atomic.Int64
}

// ask returns the status of a response, which must have no canary.
func (l *leaks) ask(method, path, accept, token string) int {
	code, _ := l.checked(method, path, token, "Accept", accept)
	return code
}

// checked returns the status and body of a response, which must have no canary unless
// the caller is the administrator.
func (l *leaks) checked(method, path, token string, header ...string) (int, string) {
	code, said := l.response(method, path, token, header...)
	for _, c := range l.canaries {
		if token != "admin-token" && strings.Contains(said, c) {
			l.Errorf("%s %s as %q, %s: %d tells %s", method, path, token, header, code, c)
		}
	}
	return code, said
}

// response returns the status and body of a response. A watch is read for a moment.
func (l *leaks) response(method, path, token string, header ...string) (int, string) {
	return l.responseUntil("", method, path, token, header...)
}

// responseUntil is response, and reads a watch that has begun up to a text, if that is not "".
func (l *leaks) responseUntil(text, method, path, token string, header ...string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, strings.NewReader(""))
	if err != nil {
		l.Error(err)
		return 0, ""
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := l.client.Do(req)
	if err != nil {
		l.Errorf("%s %s: %v", method, path, err)
		return 0, ""
	}
	defer resp.Body.Close()
	if text != "" && resp.StatusCode == http.StatusSwitchingProtocols {
		defer time.AfterFunc(time.Minute, func() { resp.Body.Close() }).Stop() // the end of ctx would not end it
		var said []byte
		buf := make([]byte, 4<<10)
		for !strings.Contains(string(said), text) {
			n, err := resp.Body.Read(buf)
			if said = append(said, buf[:n]...); err != nil {
				break
			}
		}
		l.requests.Add(1)
		return resp.StatusCode, fmt.Sprint(resp.Header) + string(said)
	}
	if strings.Contains(path, "watch=true") || strings.Contains(path, "window=true") || strings.Contains(path, "/watch/") {
		defer time.AfterFunc(300*time.Millisecond, func() {
			cancel()
			resp.Body.Close() // which is the connection of a WebSocket
		}).Stop()
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil && ctx.Err() == nil {
		l.Errorf("%s %s: %v", method, path, err)
	}
	l.requests.Add(1)
	return resp.StatusCode, fmt.Sprint(resp.Header) + string(body)
}

// A caller without the right gets no byte of an object: on no route, in no encoding, by
// no method, and not after a caller with the right got it.
func TestNothingLeaks(t *testing.T) {
	var said logbook.Book // by libraries, to klog
	klog.LogToStderr(false)
	klog.SetOutput(&said)
	defer klog.LogToStderr(true)
	cp := controlplane.Shared(t)
	r := guarded(t, cp, options{})
	const ns, name = "leak-here", "same-name"
	l, away := withCanaries(r, cp, ns, name)
	defer away()
	callers := map[string]int{"": 401, "wrong": 401, "nobody-token": 403, "namespaced-user-token": 403}

	var group errgroup.Group
	group.SetLimit(8)
	covered := 0
	for _, pattern := range leakRoutes(t) {
		stray := slices.Contains(strayPaths, pattern)
		aboutObjects := strings.Contains(pattern, "{resource}")
		for _, resource := range []string{"secrets", "configmaps"} {
			fill := strings.NewReplacer("{cluster}", "test", "{group}", "core", "{version}", "v1", "{resource}", resource, "{namespace}", ns, "{name}", name)
			path := fill.Replace(pattern)
			if strings.ContainsAny(path, "{}") {
				t.Fatalf("a route with a part that this test does not know: %s", pattern)
			}
			covered++
			group.Go(func() error {
				// A caller with the right is answered first, so that everything is cached.
				var warm answer
				if strings.Contains(path, "/watch/") { // which has no end
					warm.code, _ = status(t, r.client, http.MethodGet, r.url+path, "admin-token")
				} else {
					warm = r.as("admin-token", path)
				}
				if stray && warm.code < 400 {
					t.Errorf("%s: %d", path, warm.code)
				}
				if aboutObjects && warm.code == http.StatusOK && len(warm.body) > 0 && !strings.Contains(string(warm.body), "canary-annotation") {
					t.Errorf("%s: the test's own objects are not there: %.300s", path, warm.body)
				}
				for i := range max(len(queries), len(encodings)) {
					query := fill.Replace(queries[i%len(queries)])
					full := path
					if query != "" {
						full += "?" + query
					}
					for token, want := range callers {
						for _, method := range []string{http.MethodGet, http.MethodHead} {
							code := l.ask(method, full, encodings[i%len(encodings)], token)
							// An empty list of visible objects is no leak; and the request may
							// be invalid.
							refused := code == want || stray && code >= 400 || want == 403 && (code == 400 || strings.Contains(full, "visible=true") && code == 200)
							if aboutObjects && !refused {
								t.Errorf("%s %s as %q: %d", method, full, token, code)
							}
						}
						l.ask(http.MethodGet, path, encodings[i%len(encodings)], token)
					}
				}
				for token := range callers {
					for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "WATCH"} {
						if code := l.ask(method, path, "*/*", token); code < 400 {
							t.Errorf("%s %s as %q: %d", method, path, token, code)
						}
					}
				}
				return nil
			})
		}
	}
	_ = group.Wait()
	t.Logf("%d paths, %d requests", covered, l.requests.Load())
	if l.requests.Load() < 5000 {
		t.Error("that is hardly everything")
	}
	r.as("admin-token", "/api/v1/pods?fieldSelector=canary-&labelSelector=canary-&timeoutSeconds=canary-")
	if log := r.log.String() + said.String(); strings.Contains(log, "canary-") || strings.Contains(log, "-token") {
		t.Error("an object or a token is in the log")
	}
	if body := string(r.as("admin-token", "/metrics").body); strings.Contains(body, "canary-") || strings.Contains(body, "-token\"") {
		t.Error("an object or a token is in the metrics")
	}
}

const canary = "canary-4711"

// withCanaries puts Secrets and config maps that reveal a leak into a namespace of its
// own and into default.
func withCanaries(r *rig, cp *controlplane.Cluster, ns, name string) (l *leaks, away func()) {
	r.Helper()
	var paths []string
	admin := newAPI(r, cp.AdminConfig())
	admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	for _, kind := range []string{"secrets", "configmaps"} {
		data := fmt.Sprintf(`"stringData":{"k":%q}`, canary)
		if kind == "configmaps" {
			data = fmt.Sprintf(`"data":{"k":%q}`, canary)
		}
		for _, where := range []string{ns, "default"} {
			admin.do("POST", "/api/v1/namespaces/"+where+"/"+kind, fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"leak":"yes","l":"canary-label"},"annotations":{"a":"canary-annotation"}},%s}`, name, data))
			paths = append(paths, "/api/v1/namespaces/"+where+"/"+kind+"/"+name)
		}
	}
	l = &leaks{rig: r, canaries: []string{canary, base64.StdEncoding.EncodeToString([]byte(canary)), "canary-label", "canary-annotation"}}
	return l, func() {
		for _, path := range paths {
			admin.do("DELETE", path, "")
		}
	}
}

// leakRoutes returns all routes.
func leakRoutes(t *testing.T) []string {
	routes := append([]string{}, server.Routes...)
	for _, p := range kubernetesPaths {
		routes = append(routes, p, "/clusters/{cluster}"+p)
	}
	routes = append(routes, strayPaths...)
	if len(routes) < 25 {
		t.Fatalf("only %d routes: %v", len(routes), routes)
	}
	return routes
}
