package kubeapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"
	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// inMemory is a rig with an in-memory cluster.
func inMemory(t testing.TB, mo mirror.Options, so server.Options) (*rig, *fakeapi.Cluster) {
	t.Helper()
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	return start(t, config, mo, so), c
}

// put sets the value of a config map.
func put(t testing.TB, c *fakeapi.Cluster, name, value string) string {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"v": value}}, Data: map[string]string{"v": value}}
	out, err := c.Put(cm)
	if err != nil {
		t.Fatal(err)
	}
	return out.GetResourceVersion()
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestWebSocket(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	put(t, c, "a", "1")
	for _, protocol := range []string{"", "base64.binary.k8s.io"} {
		config, err := websocket.NewConfig("ws"+strings.TrimPrefix(r.ours.config.Host, "http")+configMaps+"?watch=1&resourceVersion=0&allowWatchBookmarks=true", r.ours.config.Host)
		if err != nil {
			t.Fatal(err)
		}
		if protocol != "" {
			config.Protocol = []string{protocol}
		}
		conn, err := websocket.DialConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		next := func() gjson.Result {
			var message string
			if err := websocket.Message.Receive(conn, &message); err != nil {
				t.Fatal(err)
			}
			return gjson.Parse(message)
		}
		for _, want := range []string{"ADDED", "BOOKMARK"} {
			if e := next(); e.Get("type").Str != want {
				t.Fatalf("%s, not %s", e, want)
			}
		}
		version := put(t, c, "a", protocol+"x")
		if e := next(); e.Get("type").Str != "MODIFIED" || e.Get("object.metadata.resourceVersion").Str != version {
			t.Fatalf("%s", e)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the server lets go of watches whose clients are gone", func() bool {
		return strings.Contains(string(r.ours.get("/metrics").body), "tidings_http_watches 0")
	})
}

// watching is a watch that a test reads event by event.
type watching struct {
	*testing.T
	lines *bufio.Reader
	body  io.Closer
}

func watchEvents(t *testing.T, a *api, path string) *watching {
	t.Helper()
	return watchEventsAs(t, a, path, "application/json")
}

func watchEventsAs(t *testing.T, a *api, path, accept string) *watching {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.config.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := a.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, resp.Status)
	}
	return &watching{t, bufio.NewReader(resp.Body), resp.Body}
}

// next returns the next event, or the zero value at the end.
func (w *watching) next() gjson.Result {
	w.Helper()
	line, err := w.lines.ReadBytes('\n')
	if err == io.EOF && len(line) == 0 {
		return gjson.Result{}
	}
	if err != nil {
		w.Fatal(err)
	}
	return gjson.ParseBytes(line)
}

func TestBookmarks(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{Kubernetes: kubeapi.Options{BookmarkEvery: 20 * time.Millisecond}})
	put(t, c, "a", "1")
	w := watchEvents(t, r.ours, configMaps+"?watch=1&resourceVersion=0&allowWatchBookmarks=true&labelSelector=v=none")
	if e := w.next(); e.Get("type").Str != "BOOKMARK" || e.Get("object.metadata.annotations").Get("k8s\\.io/initial-events-end").Str != "true" || e.Get("object.kind").Str != "ConfigMap" {
		t.Fatalf("%s", e)
	}
	version := put(t, c, "a", "2") // which does not match, and yet moves the bookmark
	for {
		e := w.next()
		if e.Get("type").Str != "BOOKMARK" || e.Get("object.metadata.annotations").Exists() {
			t.Fatalf("%s", e)
		}
		if e.Get("object.metadata.resourceVersion").Str == version {
			break
		}
	}
	// A watch that does not allow them gets none, and ends in time.
	w = watchEvents(t, r.ours, configMaps+"?watch=1&timeoutSeconds=1&resourceVersion="+version)
	if e := w.next(); e.Exists() {
		t.Fatalf("%s", e)
	}
}

// TestBookmarkBeforeTheEnd: a client that resumes gets the events it has missed.
func TestBookmarkBeforeTheEnd(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	version := put(t, c, "a", "1")
	w := watchEvents(t, r.ours, configMaps+"?watch=1&timeoutSeconds=3&allowWatchBookmarks=true&resourceVersion="+version)
	if e := w.next(); e.Get("type").Str != "BOOKMARK" || e.Get("object.metadata.resourceVersion").Str != version {
		t.Fatalf("%s", e)
	}
	if e := w.next(); e.Exists() {
		t.Fatalf("%s", e)
	}
}

// TestSelectorsOnWatches: an object that begins to match is added, one that no longer does
// is deleted, with its previous state and the version of the change.
func TestSelectorsOnWatches(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	put(t, c, "a", "1")
	w := watchEvents(t, r.ours, configMaps+"?watch=1&resourceVersion=0&allowWatchBookmarks=true&labelSelector=v=2")
	w.next()
	steps := []struct{ value, kind, data string }{{"2", "ADDED", "2"}, {"3", "DELETED", "2"}, {"2", "ADDED", "2"}}
	for _, s := range steps {
		version := put(t, c, "a", s.value)
		if e := w.next(); e.Get("type").Str != s.kind || e.Get("object.metadata.resourceVersion").Str != version || e.Get("object.data.v").Str != s.data {
			t.Fatalf("%s; want %v at %s", e, s, version)
		}
	}
}

// TestWatchTellsWhatARelistFound: a watch continues through a relist of the mirror, with
// its changes in an order in which a client may stop after any.
func TestWatchTellsWhatARelistFound(t *testing.T) {
	r, c := inMemory(t, mirror.Options{Backlog: 5, Retain: 5}, server.Options{}) // fewer than the list will find
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		put(t, c, name, "1")
	}
	w := watchEvents(t, r.ours, configMaps+"?watch=1&resourceVersion=0&allowWatchBookmarks=true")
	for range 6 {
		w.next()
	}
	c.SetDown(true)
	c.CloseWatches(corev1.SchemeGroupVersion.WithResource("configmaps"))
	put(t, c, "e", "2")
	put(t, c, "a", "2")
	if err := c.Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "b"); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "d"); err != nil {
		t.Fatal(err)
	}
	put(t, c, "d", "2") // another one of that name
	put(t, c, "f", "2")
	c.Compact()
	c.SetDown(false)
	var got []string
	last := uint64(0)
	for len(got) < 6 {
		e := w.next()
		if e.Get("type").Str == "BOOKMARK" {
			continue
		}
		version := number(e.Get("object.metadata.resourceVersion").Str)
		if version < last {
			t.Errorf("%s %s goes back from %d to %d", e.Get("type"), e.Get("object.metadata.name"), last, version)
		}
		last = version
		got = append(got, e.Get("type").Str+" "+e.Get("object.metadata.name").Str)
	}
	// f has the version of the list: a client that resumes there gets nothing else.
	want := "MODIFIED e,MODIFIED a,DELETED d,ADDED d,DELETED b,ADDED f"
	if strings.Join(got, ",") != want {
		t.Errorf("%v, not %s", got, want)
	}
	put(t, c, "a", "3")
	if e := w.next(); e.Get("type").Str != "MODIFIED" || e.Get("object.data.v").Str != "3" {
		t.Errorf("%s", e)
	}
}

// A watch that is not read ends when its backlog is full, and never sends folded events: up
// to then it has sent all changes one by one, so that its client can resume, or gets an
// error.
func TestSlowWatchesEnd(t *testing.T) {
	r, c := inMemory(t, mirror.Options{Backlog: 50, Retain: 50}, server.Options{WriteTimeout: time.Hour}) // a slow machine must not end the watch
	from := put(t, c, "0", "0")
	path := configMaps + "?watch=1&resourceVersion="
	w := watchEvents(t, r.ours, path+from)
	large := strings.Repeat("large ", 1000)
	var happened []string
	for i := range 5000 { // more than the buffers between the two can take
		happened = append(happened, put(t, c, fmt.Sprint(i%20), fmt.Sprint(large, i)))
	}
	eventually(t, "the mirror has it all", func() bool {
		return gjson.GetBytes(r.ours.get(configMaps+"?resourceVersion=0&limit=1").body, "metadata.resourceVersion").Str == happened[len(happened)-1]
	})
	sent := 0
	for e := w.next(); e.Exists(); e = w.next() {
		if version := e.Get("object.metadata.resourceVersion").Str; sent == len(happened) || version != happened[sent] {
			t.Fatalf("after %d events it gets %s %s", sent, e.Get("type"), version)
		}
		sent++
	}
	if sent == 0 || sent == len(happened) {
		t.Fatalf("%d of %d changes were sent", sent, len(happened))
	}
	if e := watchEvents(t, r.ours, path+happened[sent-1]).next(); e.Get("type").Str != "ERROR" || e.Get("object.code").Int() != http.StatusGone || e.Get("object.reason").Str != "Expired" {
		t.Errorf("who goes on, and is too far behind: %s", e)
	}
	near := watchEvents(t, r.ours, path+happened[len(happened)-30])
	for _, version := range happened[len(happened)-29:] {
		if e := near.next(); e.Get("object.metadata.resourceVersion").Str != version {
			t.Fatalf("who goes on, and is near: %s, not %s", e, version)
		}
	}
	if metrics := r.ours.get("/metrics"); !bytes.Contains(metrics.body, []byte("\ntidings_kubernetes_watches_too_slow_total 1\n")) {
		t.Error("the watch that has ended is not counted")
	}
}

func TestGzip(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	put(t, c, "small", "1")
	large := strings.Repeat("text and more text, ", 8000)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "large"}, Data: map[string]string{"v": large}}
	if _, err := c.Create(cm); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	ask := func(path, encoding string) (*http.Response, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.ours.config.Host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", encoding)
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, body
	}
	plain, whole := ask(configMaps, "identity")
	if plain.Header.Get("Content-Encoding") != "" || !json.Valid(whole) {
		t.Errorf("%v", plain.Header)
	}
	packed, body := ask(configMaps, "br, gzip;q=0.5")
	if packed.Header.Get("Content-Encoding") != "gzip" || packed.Header.Get("Vary") != "Accept-Encoding" || len(body) > len(whole)/4 {
		t.Errorf("%v, %d bytes of %d", packed.Header, len(body), len(whole))
	}
	z, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if unpacked, err := io.ReadAll(z); err != nil || !bytes.Equal(unpacked, whole) {
		t.Errorf("what is unpacked is not what was packed: %v", err)
	}
	if one, _ := ask(configMaps+"/small", "gzip"); one.Header.Get("Content-Encoding") != "" {
		t.Errorf("a small answer is compressed: %v", one.Header)
	}
}

// TestRefusals: a request that is not a read of a mirrored resource is refused, with advice
// in the error.
func TestRefusals(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	put(t, c, "a", "1")
	for _, x := range []struct {
		method, path, reason, word string
		code                       int
	}{
		{"POST", configMaps, "MethodNotAllowed", "does not create configmaps", 405},
		{"PUT", configMaps + "/a", "MethodNotAllowed", "does not update configmaps", 405},
		{"PATCH", configMaps + "/a", "MethodNotAllowed", "does not patch configmaps", 405},
		{"DELETE", configMaps + "/a", "MethodNotAllowed", "does not delete configmaps", 405},
		{"DELETE", configMaps, "MethodNotAllowed", "does not deletecollection configmaps", 405},
		{"GET", "/api/v1/namespaces/default/pods/x/log", "MethodNotAllowed", "pods/log", 405},
		{"POST", "/api/v1/namespaces/default/pods/x/exec", "MethodNotAllowed", "pods/exec", 405},
		{"GET", "/api/v1/secrets", "Forbidden", "--resource secrets", 403},
		{"GET", "/clusters/nowhere/api/v1/pods", "NotFound", `no cluster "nowhere"`, 404},
	} {
		req, err := http.NewRequestWithContext(t.Context(), x.method, r.ours.config.Host+x.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := r.ours.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		status := gjson.ParseBytes(body)
		if resp.StatusCode != x.code || status.Get("kind").Str != "Status" || status.Get("reason").Str != x.reason || !strings.Contains(status.Get("message").Str, x.word) {
			t.Errorf("%s %s: %s %s", x.method, x.path, resp.Status, body)
		}
	}
	if a := r.ours.get("/clusters/test" + configMaps); a.code != http.StatusOK || len(gjson.GetBytes(a.body, "items").Array()) != 1 {
		t.Errorf("by the name of its cluster: %s", a)
	}
}

// TestPagesAreOfOneState: the pages of a list are of one state. When that is no longer
// kept, a client can go on with the newest one.
func TestPagesAreOfOneState(t *testing.T) {
	r, c := inMemory(t, mirror.Options{Retain: 1}, server.Options{Reads: read.Options{PageTTL: time.Hour, MaxPages: 1}})
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, c, name, "1")
	}
	page := func(query string) gjson.Result {
		return gjson.ParseBytes(r.ours.get(configMaps + "?limit=2" + query).body)
	}
	names := func(list gjson.Result) string { return list.Get("items.#.metadata.name").Raw }
	first := page("")
	token := "&continue=" + first.Get("metadata.continue").Str
	if names(first) != `["a","b"]` || first.Get("metadata.remainingItemCount").Int() != 2 {
		t.Fatalf("%s", first)
	}
	for _, name := range []string{"bb", "c", "x", "y", "z"} {
		put(t, c, name, "2")
	}
	if names(page("")) != `["a","b"]` { // which replaces the kept state
		t.Fatal("the state is not kept")
	}
	second := page(token)
	if second.Get("code").Int() == http.StatusGone {
		token = "&continue=" + second.Get("metadata.continue").Str
		if second = page(token); names(second) != `["bb","c"]` || second.Get("items.1.data.v").Str != "2" {
			t.Errorf("going on with the newest state: %s", second)
		}
		return
	}
	if names(second) != `["c","d"]` || second.Get("items.0.data.v").Str != "1" { // the cluster itself still knew
		t.Errorf("%s", second)
	}
}
