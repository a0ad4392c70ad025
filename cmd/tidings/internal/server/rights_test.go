package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// guarded is a server with authentication by a real cluster. It reads with the rights
// of an administrator, which no caller must gain from.
func guarded(t *testing.T, cp *controlplane.Cluster, o options) *rig {
	t.Helper()
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	o.server.Gate = gate
	o.mirror.Resources = []string{mirror.Everything, "secrets"}
	o.server.Passthrough = true
	return serve(t, nil, cp.AdminConfig(), o)
}

// as sends a GET with a token; "" means without one.
func (r *rig) as(token, path string, header ...string) answer {
	r.Helper()
	return r.get(path, append(header, "Authorization", "Bearer "+token)...)
}

// status returns the status of a response without reading all of it.
func status(tb testing.TB, client *http.Client, method, url, token string) (code int, message string) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		tb.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return resp.StatusCode, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		tb.Fatal(err)
	}
	var said struct{ Message, Error string }
	if err := json.Unmarshal(body, &said); err != nil {
		tb.Fatalf("%s: %v: %s", url, err, body)
	}
	return resp.StatusCode, said.Message + said.Error
}

// serviceAccount creates a service account with rules, in a namespace or, if that is
// "", in all, and returns its token when the rules are in force.
func (a *api) serviceAccount(namespace, name, rules string, in string) string {
	a.Helper()
	a.do("POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	kind, at := "ClusterRole", "/apis/rbac.authorization.k8s.io/v1/"
	if in != "" {
		kind, at = "Role", at+"namespaces/"+in+"/"
	}
	if rules != "" {
		role := name + "-in-" + in
		a.do("POST", at+strings.ToLower(kind)+"s", fmt.Sprintf(`{"metadata":{"name":%q},"rules":%s}`, role, rules))
		a.do("POST", at+strings.ToLower(kind)+"bindings", fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"ServiceAccount","name":%q,"namespace":%q}]}`, role, kind, role, name, namespace))
		a.inForce("system:serviceaccount:"+namespace+":"+name, rules, in)
	}
	out := a.do("POST", "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name+"/token", `{"spec":{"expirationSeconds":3600}}`)
	return out["status"].(map[string]any)["token"].(string)
}

// inForce waits until the API server, which learns of new rules a moment later, permits a user
// what they say.
func (a *api) inForce(user, rules, in string) {
	a.Helper()
	var parsed []rbacv1.PolicyRule
	if err := json.Unmarshal([]byte(rules), &parsed); err != nil {
		a.Fatal(err)
	}
	for _, rule := range parsed {
		spec := authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: in, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: rule.Resources[0],
		}}
		if len(rule.ResourceNames) > 0 {
			spec.ResourceAttributes.Name = rule.ResourceNames[0]
		}
		body, err := json.Marshal(map[string]any{"spec": spec})
		if err != nil {
			a.Fatal(err)
		}
		eventually(a, user+" has its rights", func() bool {
			return a.do("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", string(body))["status"].(map[string]any)["allowed"] == true
		})
	}
}

// The mirror and the API server give the same answers to the same requests, in the same
// words.
func TestRightsAreTheAPIServersOwn(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	r := guarded(t, cp, options{})
	for _, ns := range []string{"rights-a", "rights-b"} {
		admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
		for _, name := range []string{"one", "two"} {
			admin.do("POST", "/api/v1/namespaces/"+ns+"/configmaps", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
			admin.do("POST", "/api/v1/namespaces/"+ns+"/secrets", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		}
	}
	rule := func(verbs, resources, names string) string {
		return fmt.Sprintf(`[{"apiGroups":[""],"verbs":["%s"],"resources":["%s"],"resourceNames":[%s]}]`,
			strings.ReplaceAll(verbs, ",", `","`), strings.ReplaceAll(resources, ",", `","`), names)
	}
	callers := map[string]string{
		"admin": "admin-token", "nobody": "nobody-token", "namespaced": "namespaced-user-token", "unknown": "wrong", "none": "",
		"get":             admin.serviceAccount("rights-a", "get", rule("get", "configmaps", ""), "rights-a"),
		"list":            admin.serviceAccount("rights-a", "list", rule("list", "configmaps", ""), "rights-a"),
		"watch":           admin.serviceAccount("rights-a", "watch", rule("watch", "configmaps", ""), "rights-a"),
		"get one":         admin.serviceAccount("rights-a", "get-one", rule("get", "configmaps", `"one"`), "rights-a"),
		"list, watch one": admin.serviceAccount("rights-a", "see-one", rule("list,watch", "configmaps", `"one"`), "rights-a"),
		"list everywhere": admin.serviceAccount("rights-a", "everywhere", rule("list", "configmaps", ""), ""),
		"secrets only":    admin.serviceAccount("rights-a", "secrets", rule("get,list,watch", "secrets", ""), "rights-a"),
		"namespace":       admin.serviceAccount("rights-a", "namespace", rule("get,list,watch", "namespaces", ""), "rights-a"),
		"namespaces":      admin.serviceAccount("rights-a", "namespaces", rule("get,list,watch", "namespaces", `"rights-a"`), ""),
	}
	requests := [][2]string{ // theirs, ours
		{"/api/v1/namespaces/rights-a", "/core/v1/namespaces/rights-a"},
		{"/api/v1/namespaces/rights-b", "/core/v1/namespaces/rights-b"},
		{"/api/v1/namespaces", "/namespaces"},
		{"/api/v1/namespaces?watch=true", "/namespaces?watch=true"},
		{"/api/v1/namespaces?fieldSelector=metadata.name=rights-a", "/namespaces?fieldSelector=metadata.name=rights-a"},
		{"/api/v1/nodes", "/nodes"},
	}
	for _, res := range []string{"configmaps", "secrets"} {
		requests = append(requests, [2]string{"/api/v1/" + res, "/" + res}, [2]string{"/api/v1/" + res + "?watch=true", "/core/v1/" + res + "?watch=true"})
		for _, ns := range []string{"rights-a", "rights-b"} {
			theirs, ours := "/api/v1/namespaces/"+ns+"/"+res, "/core/v1/"+res+"/"+ns
			requests = append(requests, [][2]string{
				{theirs, ours}, {theirs, "/" + res + "?namespace=" + ns}, {theirs, ours + "?source=live"},
				{theirs + "?limit=1", ours + "?limit=1"},
				{theirs + "?watch=true", ours + "?watch=true"},
				{theirs + "/one", ours + "/one"}, {theirs + "/two", ours + "/two"}, {theirs + "/one", ours + "/one?source=live"},
				{theirs + "?fieldSelector=metadata.name=one", ours + "?fieldSelector=metadata.name=one"},
				{theirs + "?fieldSelector=metadata.name%21=one", ours + "?fieldSelector=metadata.name%21=one"},
				{theirs + "?watch=true&fieldSelector=metadata.name=one", ours + "?watch=true&fieldSelector=metadata.name=one"},
				{theirs + "?watch=true&fieldSelector=metadata.name=one", ours + "/one?watch=true"},
				{theirs + "?watch=true&fieldSelector=metadata.name=two", ours + "/two?watch=true"},
			}...)
		}
	}
	for _, pair := range requests {
		requests = append(requests, [2]string{pair[0], pair[0]}, [2]string{pair[0], "/clusters/test" + pair[0]})
	}
	// The API server's own authorizer knows the newest rule.
	eventually(t, "rights have come into force", func() bool {
		code, _ := status(t, admin.client, "GET", admin.base+"/api/v1/namespaces/rights-a", callers["namespaces"])
		return code == http.StatusOK
	})
	plain := withoutCredentials(t, cp)
	refused, allowed := 0, 0
	for _, pair := range requests {
		for who, token := range callers {
			want, message := status(t, plain, "GET", cp.URL()+pair[0], token)
			got, said := status(t, r.client, "GET", r.url+pair[1], token)
			switch {
			case who == "none" && want == http.StatusForbidden:
				want, message = http.StatusUnauthorized, said // the API server calls nobody system:anonymous
			case want == http.StatusUnauthorized:
				message = said
			}
			if got != want || said != message {
				t.Errorf("%s, %s: %d %s; the API server: %d %s", who, pair[1], got, said, want, message)
			}
			if got == http.StatusOK {
				allowed++
			} else {
				refused++
			}
		}
	}
	if allowed < 50 || refused < 300 {
		t.Errorf("%d allowed, %d refused: that shows little", allowed, refused)
	}
}

// withoutCredentials is a client that trusts the cluster's certificate and has no
// credentials.
func withoutCredentials(tb testing.TB, cp *controlplane.Cluster) *http.Client {
	config := cp.NobodyConfig()
	config.BearerToken = ""
	return newAPI(tb, config).client
}

// A watch ends when the right or the caller is removed.
func TestWatchesEndWithTheRight(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	r := guarded(t, cp, options{})
	const ns = "rights-end"
	admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	rules := `[{"apiGroups":[""],"verbs":["watch"],"resources":["configmaps"]}]`
	right, gone := admin.serviceAccount(ns, "right", rules, ns), admin.serviceAccount(ns, "gone", rules, ns)
	path := "/core/v1/configmaps/" + ns
	for _, token := range []string{right, gone} {
		eventually(t, "the right is there", func() bool { return r.as(token, path+"/none?watch=true&since=x").code == http.StatusBadRequest })
	}
	admin.do("POST", "/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"told"}}`)
	watches := map[string]*eventSource{"Forbidden": r.eventSourceAs(path+"?watch=true", right), "Unauthorized": r.eventSourceAs(path+"?watch=true", gone)}
	for _, w := range watches {
		m, err := w.next()
		r.must(err)
		if m.Type != "ADDED" {
			t.Errorf("told %s", m)
		}
		w.expect("SYNCED")
	}
	streams := map[string]*openWatch{}
	for who, token := range map[string]string{"without the right": right, "gone": gone} {
		for how, header := range map[string][]string{"over HTTP": nil, "over a WebSocket": r.handshake()} {
			streams[who+", "+how] = r.watchAs(token, "/api/v1/namespaces/"+ns+"/configmaps?watch=true", header...)
		}
	}
	admin.do("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings/right-in-"+ns, "")
	admin.do("DELETE", "/api/v1/namespaces/"+ns+"/serviceaccounts/gone", "")
	begun := time.Now()
	for reason, w := range watches {
		m, err := w.next()
		r.must(err)
		if m.event != "end" || !strings.Contains(m.data, reason) {
			t.Errorf("%s: told %q %s", reason, m.event, m.data)
		}
		if _, err := w.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: behind the end: %v", reason, err)
		}
	}
	for who, w := range streams {
		late := time.AfterFunc(time.Until(begun.Add(30*time.Second)), func() {
			t.Errorf("the watch of who is %s goes on", who)
			w.end()
		})
		said, _ := io.ReadAll(w)
		late.Stop()
		if code := map[bool]string{true: `"code":401`, false: `"code":403`}[strings.HasPrefix(who, "gone")]; !strings.Contains(string(said), "ERROR") || !strings.Contains(string(said), code) {
			t.Errorf("the watch of who is %s does not say why it ends: %q", who, said)
		}
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("they ended only after %s", took)
	}
	if a := r.as(right, path+"?watch=true"); a.code != http.StatusForbidden {
		t.Errorf("again: %d %s", a.code, a.body)
	}
	if metrics := r.as("admin-token", "/metrics"); !strings.Contains(string(metrics.body), `tidings_access_lost_total{cluster="test"} 6`) {
		t.Error("the metrics do not show six watches that were ended")
	}
}

// openWatch is a watch of the Kubernetes API.
type openWatch struct {
	io.Reader
	end func()
}

// watchAs opens a watch and reads the beginning of the first event.
func (r *rig) watchAs(token, path string, header ...string) *openWatch {
	r.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	r.must(err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := r.client.Do(req)
	r.must(err)
	w := &openWatch{Reader: resp.Body, end: func() {
		cancel()
		resp.Body.Close() // which is the connection of a WebSocket
	}}
	r.Cleanup(w.end)
	if _, err := io.ReadFull(w, make([]byte, 10)); err != nil || resp.StatusCode >= 300 {
		r.Fatalf("%s: %s, %v", path, resp.Status, err)
	}
	return w
}

// eventSourceAs is an eventSource with a token.
func (r *rig) eventSourceAs(path, token string) *eventSource {
	es := &eventSource{rig: r, url: r.url + path, token: token}
	r.Cleanup(es.close)
	es.connect()
	return es
}
