package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// several is a server of several clusters; those of rig are in the first.
type several struct {
	*rig
	clusters map[string]*fakeapi.Cluster
	configs  map[string]*rest.Config
}

func startSeveral(t *testing.T, o options, names ...string) *several {
	t.Helper()
	s := &several{clusters: map[string]*fakeapi.Cluster{}, configs: map[string]*rest.Config{}}
	for i, name := range names {
		c := fakeapi.New(o.cluster)
		config, stop := fakeapi.InProcess(c)
		t.Cleanup(stop)
		if o.server.Gate != nil {
			config.BearerToken = "mirror-token"
		}
		if s.clusters[name], s.configs[name] = c, config; i == 0 {
			s.rig = serve(t, c, config, o)
		}
	}
	s.must(s.mirror.Set(t.Context(), s.configs))
	return s
}

func (s *several) setIn(cluster, namespace, name string) {
	s.Helper()
	one := *s.rig
	one.cluster = s.clusters[cluster]
	one.set(namespace, name, "1")
}

// told returns what the frames say of a cluster: its phase, or the reason of its problem.
func (f frame) told(name string) string {
	for _, c := range f.Clusters {
		if c.Name == name {
			return c.Upstream.Phase + c.Problem.Reason
		}
	}
	return "nothing"
}

func TestJointWindow(t *testing.T) {
	const far = "arn:aws:eks:far:1:cluster/prod" // a name with a slash in it, as there are
	s := startSeveral(t, options{}, "a", "b", far)
	inFar := strings.ReplaceAll(far, "/", "%2F") + "/"
	s.setIn("a", "default", "x")
	s.setIn("b", "default", "x")
	s.setIn("b", "other", "y")
	s.setIn(far, "default", "w")
	for path, want := range map[string][]string{
		"/cm?window=true&clusters=a,b":                                              {"a/default/x", "b/default/x", "b/other/y"},
		"/cm?window=true&clusters=*":                                                {inFar + "default/w", "a/default/x", "b/default/x", "b/other/y"},
		"/cm?window=true&clusters=*&sort=Cluster&descending=true":                   {"b/default/x", "b/other/y", inFar + "default/w", "a/default/x"},
		"/cm?window=true&clusters=*prod":                                            {inFar + "default/w"},
		"/cm?window=true&clusters=a,a,b&filter=b&columns=Cluster,Name":              {"b/default/x", "b/other/y"},
		"/cm?window=true&clusters=a,b&filter=b&columns=Name":                        {},
		"/core/v1/configmaps/default?window=true&clusters=*&sort=name":              {inFar + "default/w", "a/default/x", "b/default/x"},
		"/cm?window=true&clusters=*&first=1&count=2":                                {"a/default/x", "b/default/x"},
		"/cm?window=true&clusters=*&namespace=other,default&sort=Name&labels[x]=no": {},
		"/nodes?window=true&visible=true&clusters=a,b":                              {},
	} {
		f := s.eventSource(path).frame(path, keys(want...))
		if i := slices.IndexFunc(f.Columns, func(c struct{ Name string }) bool { return c.Name == "Cluster" }); i != 0 && f.Columns != nil && !strings.Contains(path, "columns") {
			t.Errorf("%s: the columns are %v", path, f.Columns)
		}
	}
	es := s.eventSource("/cm?window=true&clusters=a,b")
	es.frame("the beginning", keys("a/default/x", "b/default/x", "b/other/y"))
	s.setIn("a", "default", "z")
	es.frame("a new one", keys("a/default/x", "b/default/x", "a/default/z", "b/other/y"))
	s.clusters["b"].SetDown(true)
	es.frame("that b is away", func(_ string, f frame) bool { return f.told("b") != "nothing" && f.told("b") != "watching" })
	s.setIn("a", "default", "during")
	es.frame("what a has meanwhile", keys("a/default/during", "a/default/x", "b/default/x", "a/default/z", "b/other/y"))
	s.clusters["b"].SetDown(false)
	es.frame("that b is back", func(_ string, f frame) bool { return f.told("b") == "watching" })
	s.must(s.mirror.Set(t.Context(), map[string]*rest.Config{"a": s.configs["a"], far: s.configs[far]}))
	es.frame("that b is gone", func(_ string, f frame) bool { return f.told("b") == "UnknownCluster" })
	_ = s.stop()
	es.ended()
}

func TestInvalidJointWindows(t *testing.T) {
	s := startSeveral(t, options{}, "a", "b")
	for path, want := range map[string]string{
		"/cm?window=true&clusters=": "name is empty", "/cm?window=true&clusters=x*": "0 clusters", "/clusters/a/cm?clusters=b": "window=true", "/clusters/a/cm?window=true&clusters=b": "clusters",
		"/cm?window=true&clusters=a,b&sort=nonsense": "nonsense", "/cm?window=true&clusters=a,b&count=0": "count", "/nonsense?window=true&clusters=*": "nonsense",
		"/cm?window=true&clusters=no": "no", "/cm?window=true&clusters=a&limit=1": "limit", "/cm?window=true&clusters=a&clusters=b": "clusters",
		"/clusters/a/nodes?window=true&namespace=a,b": "namespaced", "/clusters/a/cm?window=true&namespace=a,b&visible=true": "visible", "/clusters/a/cm?window=true&namespace=a,B": "B", "/clusters/a/cm?namespace=a,b": "namespace",
		"/clusters/a/core/v1/configmaps/a?window=true&namespace=a,b": "namespace", "/clusters/a/cm?window=true&namespace=" + strings.Repeat("x,", 3) + many(65): "64",
	} {
		if a := s.get(path); a.code != http.StatusBadRequest && a.code != http.StatusNotFound || !strings.Contains(a.Error, want) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.url+"/cm?window=true&clusters=*", nil)
	s.must(err)
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	if a := s.do(req); a.code != http.StatusForbidden {
		t.Errorf("a request of a page of another origin: %d", a.code)
	}
}

func many(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint("n", i))
	}
	return strings.Join(out, ",")
}

// Each cluster authenticates and authorizes its part, and each namespace is authorized by
// itself. What is not permitted is told, and the rest is shown.
func TestRightsOfJointWindows(t *testing.T) {
	gate, err := access.NewGate(access.Options{AllowTTL: 100 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	who := &rights{of: map[string]bool{}}
	r := startSeveral(t, options{server: server.Options{Gate: gate}, cluster: fakeapi.Options{
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}}, Allow: who.allow,
	}}, "a", "b")
	strangers := fakeapi.New(fakeapi.Options{Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}}, Allow: func(u fakeapi.User, _ fakeapi.Access) bool { return u.Name == "mirror" }})
	config, stop := fakeapi.InProcess(strangers)
	t.Cleanup(stop)
	config.BearerToken = "mirror-token"
	r.configs["c"] = config
	r.must(r.mirror.Set(t.Context(), r.configs))
	for _, c := range []string{"a", "b"} {
		r.setIn(c, "shop", "one-"+c)
		r.setIn(c, "web", "two-"+c)
	}
	open := func(token, path string) *eventSource {
		es := &eventSource{rig: r.rig, url: r.url + path, token: token}
		t.Cleanup(es.close)
		es.connect()
		return es
	}
	for token, want := range map[string]int{"alice-token": 403, "wrong": 401, "": 401} {
		for _, path := range []string{"/cm?window=true&clusters=a,b", "/clusters/a/cm?window=true&namespace=shop,web"} {
			if code, message := status(t, r.client, http.MethodGet, r.url+path, token); code != want {
				t.Errorf("%s of %q without the right: %d %s", path, token, code, message)
			}
		}
	}
	if code, _ := status(t, r.client, http.MethodGet, r.url+"/cm?window=true&clusters=c,a", "alice-token"); code != http.StatusUnauthorized {
		t.Errorf("permitted in none: %d", code)
	}
	who.grant(true, "alice", "shop", "watch")
	eventually(t, "the right is seen", func() bool {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.url+"/clusters/a/cm?window=true&namespace=shop,web", nil)
		r.must(err)
		req.Header.Set("Authorization", "Bearer alice-token")
		return r.do(req).code == http.StatusOK
	})
	named := open("alice-token", "/clusters/a/cm?window=true&namespace=web,shop")
	named.frame("what is not permitted", func(event string, f frame) bool {
		return event == "visible" && slices.Equal(f.Namespaces, []string{"shop"}) && slices.Equal(f.Refused, []string{"web"})
	})
	named.frame("shop", keys("shop/one-a"))
	joint := open("alice-token", "/cm?window=true&clusters=*&visible=true")
	joint.frame("shop of both", keys("a/shop/one-a", "b/shop/one-b"))
	joint.frame("that c does not know her", func(_ string, f frame) bool { return f.told("c") == "Unauthorized" && f.told("a") == "watching" })
	if n := strangers.Count("list", configMaps) + strangers.Count("watch", configMaps); n > 0 {
		t.Errorf("%d requests are put to a cluster that does not know her", n)
	}
	who.grant(true, "alice", "web", "watch")
	named.frame("both", keys("shop/one-a", "web/two-a"))
	joint.frame("all of both", keys("a/shop/one-a", "b/shop/one-b", "a/web/two-a", "b/web/two-b"))
	who.grant(false, "alice", "shop", "watch")
	joint.frame("web of both", keys("a/web/two-a", "b/web/two-b"))
	named.frame("web", keys("web/two-a"))
	who.grant(false, "alice", "web", "watch")
	if why := named.ended(); !strings.Contains(why, `"Forbidden"`) {
		t.Errorf("the window ends with %s", why)
	}
	joint.frame("nothing", keys())
}
