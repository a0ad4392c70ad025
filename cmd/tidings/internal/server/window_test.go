package server_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// frame is a frame of a window.
type frame struct {
	Columns         []struct{ Name string }
	Total           *int
	Keys            []string
	Rows            map[string][]any
	Synced          bool
	ResourceVersion string
	All             bool // of an event "visible"
	Namespaces      []string
	Refused         []string
	At              int64
	Moment          *struct{ Time time.Time }
	Clusters        []struct {
		Name     string
		Upstream struct{ Phase string }
		Problem  struct{ Reason string }
	}
}

// frame reads the stream up to a frame that wanted accepts.
func (es *eventSource) frame(what string, wanted func(event string, f frame) bool) frame {
	es.Helper()
	for range 100 {
		m, err := es.next()
		es.must(err)
		if m.event == "end" {
			es.Fatalf("waiting for %s: the window ends: %s", what, m.data)
		}
		var f frame
		es.must(json.Unmarshal([]byte(m.data), &f))
		if wanted(m.event, f) {
			return f
		}
	}
	es.Fatalf("there was no frame of %s", what)
	return frame{}
}

// ended returns why the window ends, which is to come soon.
func (es *eventSource) ended() string {
	es.Helper()
	for range 5 { // there is a frame every 5 seconds at least
		m, err := es.next()
		es.must(err)
		if m.event == "end" {
			return m.data
		}
	}
	es.Fatal("the window does not end")
	return ""
}

func keys(want ...string) func(string, frame) bool {
	return func(event string, f frame) bool { return event == "" && f.Synced && slices.Equal(f.Keys, want) }
}

func TestWindow(t *testing.T) {
	r := start(t, options{})
	r.set("default", "a", "1")
	r.set("default", "b", "1")
	r.set("other", "c", "1", "in=yes")
	for path, want := range map[string][]string{
		"/cm?window=true": {"default/a", "default/b", "other/c"},
		"/cm?window=1&sort=Name&descending=true&first=1&count=1":             {"default/b"},
		"/clusters/test/core/v1/configmaps?window=true&namespace=default":    {"default/a", "default/b"},
		"/cm?window=true&visible=true&labels[in]=yes":                        {"other/c"},
		"/core/v1/configmaps/other?window=true&filter=C":                     {"other/c"},
		"/core/v1/configmaps/other/c?window=true&columns=Name,Age&count=500": {"other/c"},
		"/namespaces?window=true&visible=true&filter=default":                {"default"},
	} {
		r.eventSource(path).frame(path, keys(want...))
	}
	es := r.eventSource("/cm?window=true&namespace=default&columns=name")
	if f := es.frame("the beginning", keys("default/a", "default/b")); len(f.Columns) != 1 || f.Columns[0].Name != "Name" || *f.Total != 2 {
		t.Errorf("%+v", f)
	}
	r.set("default", "aa", "1")
	es.frame("the new one", keys("default/a", "default/aa", "default/b"))
	r.must(r.cluster.Delete(configMaps, "default", "a"))
	es.frame("the deleted one", keys("default/aa", "default/b"))
	_ = r.stop()
	es.ended()
}

func TestInvalidWindows(t *testing.T) {
	r := start(t, options{})
	for query, want := range map[string]string{
		"window=true&sort=nonsense": "nonsense", "window=true&columns=nonsense": "nonsense", "window=true&count=0": "count", "window=true&count=501": "count",
		"window=true&first=x": "first", "window=true&descending=x": "descending", "window=true&filter=" + strings.Repeat("x", 257): "filter",
		"window=true&limit=1": "limit", "window=true&watch=true": "watch", "window=true&at=-1h": "history", "window=x": "window", "sort=Name": "window=true",
		"window=true&columns=": "columns", "window=true&window=true": "window", "window=true&source=live": "source",
	} {
		if a := r.get("/cm?" + query); a.code != http.StatusBadRequest || !strings.Contains(a.Error, want) {
			t.Errorf("%s: %d %s", query, a.code, a.body)
		}
	}
	for site, want := range map[string]int{"same-origin": 200, "none": 200, "cross-site": 403, "same-site": 403} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, r.url+"/cm?window=true", nil)
		r.must(err)
		req.Header.Set("Sec-Fetch-Site", site)
		if a := r.do(req); a.code != want {
			t.Errorf("a request of a page that is %s: %d", site, a.code)
		}
	}
}

// A window shows what its caller may read, ends with the right, and with visible=true
// follows the namespaces that the caller may read.
func TestRightsOfWindows(t *testing.T) {
	r, who := guardedDemo(t, options{server: server.Options{MaxWindowsPerCaller: 2}})
	r.set("a", "of-a", "1")
	r.set("b", "of-b", "1")
	open := func(token, path string) *eventSource {
		es := &eventSource{rig: r, url: r.url + path, token: token}
		t.Cleanup(es.close)
		es.connect()
		return es
	}
	for path, want := range map[string]int{"/cm?window=true": 403, "/cm?window=true&namespace=a": 403, "/cm?window=true&visible=true": 200} {
		if code, message := status(t, r.client, http.MethodGet, r.url+path, "alice-token"); code != want {
			t.Errorf("%s without the right: %d %s", path, code, message)
		}
	}
	if code, _ := status(t, r.client, http.MethodGet, r.url+"/cm?window=true", "wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong token: %d", code)
	}
	who.grant(true, "alice", "a", "list")
	if code, _ := status(t, r.client, http.MethodGet, r.url+"/cm?window=true&namespace=a", "alice-token"); code != http.StatusForbidden {
		t.Errorf("the right to list is taken for the right to watch: %d", code)
	}
	who.grant(true, "alice", "a", "watch")
	who.grant(true, "bob", "*", "watch")
	bob := open("bob-token", "/cm?window=true&visible=true")
	bob.frame("all", keys("a/of-a", "b/of-b"))
	all := open("alice-token", "/cm?window=true&visible=true")
	all.frame("what it is limited to", func(event string, f frame) bool {
		return event == "visible" && !f.All && slices.Equal(f.Namespaces, []string{"a"})
	})
	all.frame("a", keys("a/of-a"))
	one := open("alice-token", "/cm?window=true&namespace=a")
	one.frame("a", keys("a/of-a"))
	if code, message := status(t, r.client, http.MethodGet, r.url+"/cm?window=true&namespace=a", "alice-token"); code != http.StatusTooManyRequests {
		t.Errorf("a third window: %d %s", code, message)
	}
	who.grant(true, "alice", "b", "watch")
	all.frame("both", keys("a/of-a", "b/of-b"))
	who.grant(false, "alice", "a", "watch")
	all.frame("b", keys("b/of-b"))
	if why := one.ended(); !strings.Contains(why, `"Forbidden"`) {
		t.Errorf("the window ends with %s", why)
	}
	r.set("a", "more", "1")
	bob.frame("bob's rights are as before", keys("a/more", "a/of-a", "b/of-b"))
}

func TestThePage(t *testing.T) {
	r := start(t, options{})
	browser := []string{"Accept", "text/html,application/xhtml+xml,*/*;q=0.8"}
	page := r.get("/", browser...)
	if page.code != http.StatusOK || !bytes.Contains(page.body, []byte("/page/app.js")) || !strings.Contains(page.header.Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", page.code, page.body)
	}
	for _, path := range []string{"/", "/page/app.js", "/page/app.css", "/page/icon.svg"} {
		plain := r.get(path, append(browser, "Accept-Encoding", "identity")...)
		packed := r.get(path, append(browser, "Accept-Encoding", "br, gzip;q=1.0")...)
		policy := plain.header.Get("Content-Security-Policy")
		if plain.code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none';") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d %v", path, plain.code, plain.header)
		}
		z, err := gzip.NewReader(bytes.NewReader(packed.body))
		r.must(err)
		unpacked, err := io.ReadAll(z)
		r.must(err)
		if !bytes.Equal(unpacked, plain.body) || len(plain.body) < 100 {
			t.Errorf("%s: compressed it is something else", path)
		}
		for _, a := range []answer{plain, packed} {
			etag := a.header.Get("ETag")
			if again := r.get(path, append(browser, "Accept-Encoding", map[bool]string{true: "gzip", false: "identity"}[len(a.header.Get("Content-Encoding")) > 0], "If-None-Match", etag)...); again.code != http.StatusNotModified || etag == "" {
				t.Errorf("%s with its own ETag %s: %d", path, etag, again.code)
			}
		}
	}
	app := r.get("/page/app.js", "Accept-Encoding", "gzip")
	css := r.get("/page/app.css", "Accept-Encoding", "gzip")
	if size := len(app.body) + len(css.body); size > 60<<10 {
		t.Errorf("the page has %d bytes", size)
	}
	if a := r.get("/page/index.html"); a.code != http.StatusNotFound {
		t.Errorf("%d", a.code)
	}
	guarded, _ := guardedDemo(t, options{})
	if a := guarded.get("/page/app.js"); a.code != http.StatusOK { // the page asks for the token
		t.Errorf("without credentials: %d", a.code)
	}
}

func TestMetricsOfWindows(t *testing.T) {
	r := start(t, options{})
	r.set("default", "x", "1")
	es := r.eventSource("/cm?window=true")
	es.frame("the beginning", keys("default/x"))
	metrics := string(r.get("/metrics").body)
	for _, want := range []string{"\ntidings_live_tables 1\n", "\ntidings_live_table_windows 1\n", "\ntidings_live_table_bytes "} {
		if !strings.Contains(metrics, want) || strings.Contains(metrics, "tidings_live_table_bytes 0\n") {
			t.Errorf("the metrics do not have %q:\n%s", want, metrics)
		}
	}
}
