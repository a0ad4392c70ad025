package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// api is a client of the API server itself.
type api struct {
	testing.TB
	client *http.Client
	base   string
}

func newAPI(tb testing.TB, config *rest.Config) *api {
	tb.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(client.CloseIdleConnections)
	return &api{tb, client, config.Host}
}

func (a *api) do(method, path, body string) map[string]any {
	a.Helper()
	req, err := http.NewRequestWithContext(a.Context(), method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		a.Fatalf("%s %s: %s %v %s", method, path, resp.Status, err, raw)
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		a.Fatal(err)
	}
	return out
}

// items returns the objects of a list as the server returns them: with kind and
// apiVersion.
func (a *api) items(path string) []any {
	a.Helper()
	list := a.do(http.MethodGet, path, "")
	items, _ := list["items"].([]any)
	for _, i := range items {
		o := i.(map[string]any)
		o["kind"], o["apiVersion"] = strings.TrimSuffix(list["kind"].(string), "List"), list["apiVersion"]
	}
	return items
}

func TestMirrorsARealCluster(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	r := serve(t, nil, cp.AdminConfig(), options{mirror: mirror.Options{Resources: []string{mirror.Everything, "secrets"}}})
	ns := "server-mirrors"
	admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, ns))
	if a := r.get("/gadgets"); a.code != http.StatusNotFound {
		t.Errorf("before there is a definition: %d %s", a.code, a.body)
	}
	admin.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"gadgets.server.example.com"},"spec":{
		"group":"server.example.com","scope":"Namespaced","names":{"plural":"gadgets","singular":"gadget","kind":"Gadget","shortNames":["gdt"]},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`)
	eventually(t, "the new definition is served", func() bool { return r.get("/gdt").code == http.StatusOK })

	kinds := []struct{ ours, theirs, body string }{
		{"/core/v1/configmaps/" + ns, "/api/v1/namespaces/" + ns + "/configmaps", `"data":{"k":%q}`},
		{"/core/v1/secrets/" + ns, "/api/v1/namespaces/" + ns + "/secrets", `"stringData":{"k":%q}`},
		{"/core/v1/services/" + ns, "/api/v1/namespaces/" + ns + "/services", `"spec":{"ports":[{"port":80}],"selector":{"k":%q}}`},
		{"/server.example.com/v1/gadgets/" + ns, "/apis/server.example.com/v1/namespaces/" + ns + "/gadgets", `"kind":"Gadget","apiVersion":"server.example.com/v1","spec":{"k":%q}`},
	}
	watches := map[string]*eventSource{}
	for _, k := range kinds {
		w := r.eventSource(k.ours + "?watch=true")
		for m := (message{}); m.Type != "SYNCED"; {
			var err error
			m, err = w.next()
			r.must(err)
		}
		watches[k.ours] = w
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	there, want := map[string]bool{}, map[string][]string{}
	for i := range 200 {
		k := kinds[rnd.IntN(len(kinds))]
		name := fmt.Sprint("o", rnd.IntN(6))
		path, value := k.theirs+"/"+name, fmt.Sprint("v", i)
		kind, o := "ADDED", map[string]any{}
		switch {
		case !there[path]:
			o = admin.do("POST", k.theirs, fmt.Sprintf(`{"metadata":{"name":%q},`+k.body+`}`, name, value))
			there[path] = true
		case rnd.IntN(3) > 0:
			kind, o = "MODIFIED", admin.do("PATCH", path, fmt.Sprintf(`{`+k.body+`}`, value))
		default:
			kind = "DELETED"
			admin.do("DELETE", path, "")
			there[path] = false
		}
		version := ""
		if kind != "DELETED" {
			version = o["metadata"].(map[string]any)["resourceVersion"].(string)
		}
		want[k.ours] = append(want[k.ours], kind+" "+ns+"/"+name+"@"+version)
		if kind == "ADDED" && i%3 == 0 && k.ours == kinds[0].ours {
			// A client can wait for what it has written.
			a := r.get("/core/v1/configmaps/" + ns + "?source=live")
			if !slices.Contains(a.names(), ns+"/"+name) {
				t.Errorf("source=live does not show what was just written: %v", a.names())
			}
		}
	}
	for _, k := range kinds {
		var got []string
		for _, want := range want[k.ours] {
			m, err := watches[k.ours].next()
			r.must(err)
			line := m.String()
			if strings.HasSuffix(want, "@") { // a client does not learn the version of its deletion
				line = line[:strings.LastIndex(line, "@")+1]
			}
			got = append(got, line)
		}
		same(t, k.ours, got, want[k.ours])

		var mirrored []any
		r.must(json.Unmarshal(r.get(k.ours).Data, &mirrored))
		items := admin.items(k.theirs)
		if len(items) != len(mirrored) || len(items) > 0 && !reflect.DeepEqual(items, mirrored) {
			t.Errorf("%s: the API server has\n%v\nthe mirror\n%v", k.ours, items, mirrored)
		}
		for _, item := range items {
			name := item.(map[string]any)["metadata"].(map[string]any)["name"].(string)
			cached, live := r.get(k.ours+"/"+name), r.get(k.ours+"/"+name+"?source=live")
			if !bytes.Equal(cached.Data, live.Data) {
				t.Errorf("%s/%s: cached\n%s\nlive\n%s", k.ours, name, cached.Data, live.Data)
			}
		}
	}
}

func TestRightsOfTheMirror(t *testing.T) {
	cp := controlplane.Shared(t)
	for user, config := range map[string]*rest.Config{"nobody": cp.NobodyConfig(), "namespaced-user": cp.NamespacedUserConfig()} {
		r := serve(t, nil, config, options{})
		for _, query := range []string{"", "?source=live", "?watch=true", "?watch=true&source=live"} {
			a := r.get("/pods" + query)
			if a.code != http.StatusForbidden || a.Reason != "Forbidden" || !strings.Contains(a.Error, user) || !strings.Contains(a.Error, `resource "pods"`) {
				t.Errorf("%s, %q: %d %s", user, query, a.code, a.body)
			}
		}
		want := map[string]int{"nobody": http.StatusForbidden, "namespaced-user": http.StatusOK}[user]
		for _, query := range []string{"", "?source=live"} {
			if a := r.get("/core/v1/pods/" + controlplane.Namespace + query); a.code != want {
				t.Errorf("%s in its namespace, %q: %d %s", user, query, a.code, a.body)
			}
			if a := r.get("/core/v1/pods/default" + query); a.code != http.StatusForbidden {
				t.Errorf("%s in another namespace, %q: %d %s", user, query, a.code, a.body)
			}
		}
		r.get("/metrics")
	}
	config := cp.AdminConfig()
	config.BearerToken = "wrong"
	r := serve(t, nil, config, options{})
	if a := r.get("/pods"); a.code != http.StatusBadGateway || a.Reason != "Unauthorized" {
		t.Errorf("credentials that are not accepted: %d %s", a.code, a.body)
	}
}

// A browser's watch goes on when the API server restarts and loses its watch cache, and
// gets each event once.
func TestEventSourceOutlivesTheAPIServer(t *testing.T) {
	cp := controlplane.Start(t)
	admin := newAPI(t, cp.AdminConfig())
	r := serve(t, nil, cp.AdminConfig(), options{})
	const path, theirs = "/core/v1/configmaps/default", "/api/v1/namespaces/default/configmaps"
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			admin.do("POST", theirs, fmt.Sprintf(`{"metadata":{"name":"o%d"}}`, i))
			if i%3 == 2 {
				admin.do("DELETE", fmt.Sprintf("%s/o%d", theirs, i-1), "")
				admin.do("PATCH", fmt.Sprintf("%s/o%d", theirs, i-2), `{"data":{"k":"v"}}`)
			}
		}
	}
	w := r.eventSource(path + "?watch=true")
	state, told := map[string]string{}, map[string]bool{}
	follow := func(last string) {
		t.Helper()
		for state["default/"+last] == "" {
			m, err := w.next()
			r.must(err)
			if m.Type == "RESET" || m.event != "" || told[m.String()] && m.Object != nil {
				t.Fatalf("told %s, after %v", m, told)
			}
			if told[m.String()] = true; m.Object == nil {
				continue
			}
			delete(state, m.Object.String())
			if m.Type != "DELETED" {
				state[m.Object.String()] = m.Object.Metadata.ResourceVersion
			}
		}
	}
	write(0, 10)
	follow("o9")
	r.must(cp.KillAPIServer(t.Context()))
	r.must(cp.StartAPIServer(t.Context()))
	write(10, 20)
	follow("o19")
	w.connect() // the client's own connection breaks as well
	write(20, 30)
	r.must(cp.KillAPIServer(t.Context())) // stopped in good order it waits a minute for its watches
	r.must(cp.CompactEtcd(t.Context()))
	r.must(cp.StartAPIServer(t.Context()))
	write(30, 40)
	follow("o39")
	for _, item := range admin.items(theirs) {
		meta := item.(map[string]any)["metadata"].(map[string]any)
		name, version := "default/"+meta["name"].(string), meta["resourceVersion"].(string)
		if state[name] != version {
			t.Errorf("%s is at %s, told was %q", name, version, state[name])
		}
		delete(state, name)
	}
	if len(state) > 0 {
		t.Errorf("told of, and not there: %v", state)
	}
}
