package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestWatch(t *testing.T) {
	for _, source := range []string{"cache", "live"} {
		t.Run(source, func(t *testing.T) {
			r := start(t, options{})
			a := r.set("default", "a", "1", "in=yes")
			all := r.eventSource("/cm?watch=true&source=" + source)
			some := r.eventSource("/core/v1/configmaps/default?watch=1&labels[in]=yes&source=" + source)
			one := r.eventSource("/clusters/test/core/v1/configmaps/default/b?watch=true&source=" + source)
			all.expect("ADDED default/a@"+a, "SYNCED")
			some.expect("ADDED default/a@"+a, "SYNCED")
			one.expect("SYNCED")
			if all.lastID != a || all.retry == "" {
				t.Errorf("after the initial list the id is %q, retry %q", all.lastID, all.retry)
			}
			b := r.set("default", "b", "1")
			all.expect("ADDED default/b@" + b)
			one.expect("ADDED default/b@" + b)
			b = r.set("default", "b", "2", "in=yes")
			all.expect("MODIFIED default/b@" + b)
			some.expect("ADDED default/b@" + b)
			one.expect("MODIFIED default/b@" + b)
			c := r.set("default", "b", "3")
			all.expect("MODIFIED default/b@" + c)
			one.expect("MODIFIED default/b@" + c)
			if m, err := some.next(); err != nil || m.Type != "DELETED" || m.ResourceVersion != c {
				t.Errorf("one that no longer matches: %+v, %v", m, err)
			}
			r.must(r.cluster.Delete(configMaps, "default", "a"))
			deleted := "DELETED default/a@" + r.cluster.ResourceVersion()
			all.expect(deleted)
			some.expect(deleted)
			if all.lastID != r.cluster.ResourceVersion() {
				t.Errorf("the id is %q", all.lastID)
			}
		})
	}
}

func TestSinceAndLastEventID(t *testing.T) {
	r := start(t, options{mirror: mirror.Options{Retain: 10}})
	a := r.set("default", "a", "1")
	version := r.get("/cm").ResourceVersion
	b := r.set("default", "b", "1")
	w := r.eventSource("/cm?watch=true&since=" + version)
	w.expect("ADDED default/b@" + b)
	c := r.set("default", "c", "1")
	w.expect("ADDED default/c@" + c)
	w.connect() // Last-Event-ID is newer than since
	d := r.set("default", "d", "1")
	w.expect("ADDED default/d@" + d)
	for i := range 50 {
		d = r.set("default", "d", fmt.Sprint(i))
	}
	eventually(t, "the mirror has caught up", func() bool { return r.get("/cm").ResourceVersion == d })
	w.lastID = version
	w.connect() // too old
	w.expect("RESET", "ADDED default/a@"+a, "ADDED default/b@"+b, "ADDED default/c@"+c, "ADDED default/d@"+d, "SYNCED")
	if w.lastID != d {
		t.Errorf("the id is %q", w.lastID)
	}
	if a := r.get("/cm?watch=true", "Last-Event-ID", "nonsense"); a.code != http.StatusBadRequest {
		t.Errorf("%d %s", a.code, a.body)
	}
	// A client that breaks off in the initial list knows nothing for sure.
	half := r.eventSource("/cm?watch=true")
	half.expect("ADDED default/a@" + a)
	half.connect()
	half.expect("RESET", "ADDED default/a@"+a, "ADDED default/b@"+b)
}

// An EventSource whose connection breaks all the time gets the same events as one whose
// connection does not.
func TestEventSourcesLoseAndRepeatNothing(t *testing.T) {
	r := start(t, options{})
	rnd := rand.New(rand.NewPCG(1, 1))
	path := "/cm?watch=true&labels[in]=yes"
	whole, broken := r.eventSource(path), r.eventSource(path)
	whole.expect("SYNCED")
	broken.expect("SYNCED")
	for round := range 40 {
		outage := round == 20 // the mirror takes a second or more to get over it
		if outage {
			r.cluster.SetDown(true)
		}
		for range rnd.IntN(50) {
			name, in := fmt.Sprint("cm-", rnd.IntN(8)), []string{"in=yes", "in=no"}[rnd.IntN(2)]
			if _, err := r.cluster.Get(configMaps, "default", name); err == nil && rnd.IntN(3) == 0 {
				r.must(r.cluster.Delete(configMaps, "default", name))
			} else {
				r.set("default", name, fmt.Sprint(rnd.Int()), in)
			}
		}
		if outage {
			r.cluster.Compact()
			r.cluster.SetDown(false)
		}
		last := r.set("default", "last", fmt.Sprint(round), "in=yes")
		read := func(es *eventSource, breaks bool) (told []string) {
			for {
				if breaks && rnd.IntN(4) == 0 {
					es.connect()
				}
				m, err := es.next()
				r.must(err)
				told = append(told, m.String())
				if m.Object != nil && m.Object.String() == "default/last" && m.Object.Metadata.ResourceVersion == last {
					return told
				}
			}
		}
		same(t, fmt.Sprint("round ", round), read(broken, true), read(whole, false))
	}
}

func TestKeepAlive(t *testing.T) {
	r := start(t, options{cluster: fakeapi.Options{BookmarkInterval: 5 * time.Millisecond}, server: server.Options{KeepAlive: 10 * time.Millisecond}})
	w := r.eventSource("/cm?watch=true&namespace=default")
	w.expect("SYNCED")
	noise := r.set("kube-public", "noise", "1") // not for this watch, but its id moves on
	comments := 0
	for moved := false; !moved || comments < 2; {
		line, err := w.lines.ReadString('\n')
		r.must(err)
		switch strings.TrimSuffix(line, "\n") {
		case "":
		case ":":
			comments++
		case "id: " + noise:
			moved = true
		default:
			t.Fatalf("silence is broken by %q", line)
		}
	}
}

func TestWatchesEndWithTheirCluster(t *testing.T) {
	r := start(t, options{})
	r.set("default", "a", "1")
	w := r.eventSource("/cm?watch=true")
	w.expect("ADDED default/a@5", "SYNCED")
	r.must(r.mirror.Set(t.Context(), map[string]*rest.Config{"test": rest.CopyConfig(r.config)}))
	m, err := w.next()
	r.must(err)
	var why struct{ Error, Reason string }
	r.must(json.Unmarshal([]byte(m.data), &why))
	if m.event != "end" || why.Reason != "Ended" || why.Error == "" {
		t.Errorf("the end: %+v", m)
	}
	if _, err := w.next(); err == nil {
		t.Error("it goes on")
	}
	w.connect() // the new cluster's versions may mean something else
	w.expect("RESET", "ADDED default/a@5", "SYNCED")
	r.must(r.mirror.Set(t.Context(), nil))
	w.expect("end")
}

func TestShutdownWithOpenWatches(t *testing.T) {
	r := start(t, options{})
	r.set("default", "a", "1")
	var watches []*eventSource
	for i := range 20 {
		source := []string{"cache", "live"}[i%2]
		w := r.eventSource("/cm?watch=true&source=" + source)
		w.expect("ADDED default/a@5", "SYNCED")
		watches = append(watches, w)
	}
	begun := time.Now()
	r.must(r.stop())
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the shutdown took %s", took)
	}
	for _, w := range watches {
		w.expect("end")
		if w.lastID != "5" {
			t.Errorf("the id is %q: it should be good for the next server", w.lastID)
		}
		if _, err := w.next(); err == nil {
			t.Error("it goes on")
		}
	}
}

// A client that does not read is given up on, and no other notices.
func TestClientsThatDoNotRead(t *testing.T) {
	r := start(t, options{server: server.Options{WriteTimeout: 300 * time.Millisecond}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	r.must(err)
	defer conn.Close()
	r.must(conn.(*net.TCPConn).SetReadBuffer(4 << 10))
	_, err = fmt.Fprintf(conn, "GET /cm?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
	r.must(err)
	reader := r.eventSource("/cm?watch=true")
	reader.expect("SYNCED")
	open := func(n int) func() bool {
		return func() bool {
			return strings.Contains(string(r.get("/metrics").body), fmt.Sprintf("tidings_http_watches %d\n", n))
		}
	}
	eventually(t, "two watches are open", open(2))
	big := strings.Repeat("x", 100_000)
	for i := range 120 {
		v := r.set("default", "big", fmt.Sprint(i, big))
		m, err := reader.next()
		r.must(err)
		if m.ResourceVersion != v {
			t.Fatalf("told %s, want version %s", m, v)
		}
	}
	eventually(t, "the one that does not read is given up on", open(1))
}

func TestTooManyWatches(t *testing.T) {
	r := start(t, options{server: server.Options{MaxWatches: 1}})
	w := r.eventSource("/cm?watch=true")
	w.expect("SYNCED")
	if a := r.get("/cm?watch=true"); a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.code, a.body)
	}
	w.close()
	eventually(t, "there is room again", func() bool {
		req, _ := http.NewRequest(http.MethodHead, r.url+"/cm?watch=true", nil)
		return r.do(req).code == http.StatusOK
	})
}

func TestSecretsStayOutOfTheLog(t *testing.T) {
	const value = "aHVudGVyMg=="
	r := start(t, options{mirror: mirror.Options{Resources: []string{"secrets"}}})
	_, err := r.cluster.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s", Labels: map[string]string{"password": "hunter2"}}, Data: map[string][]byte{"p": []byte("hunter2")}})
	r.must(err)
	eventually(t, "the secret is mirrored", func() bool {
		return strings.Contains(string(r.get("/secrets?labels[password]=hunter2").body), value)
	})
	w := r.eventSource("/core/v1/secrets/default/s?watch=true")
	w.expect("ADDED default/s@5", "SYNCED")
	r.get("/secrets?labels[password]=hunter2&nonsense=1")
	r.get("/metrics")
	r.must(r.stop())
	if log := r.log.String(); strings.Contains(log, value) || strings.Contains(log, "hunter2") || !strings.Contains(log, "request") {
		t.Errorf("the log: %s", log)
	}
}

func TestListensOnLoopbackOnly(t *testing.T) {
	m, err := mirror.New(mirror.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(context.Background())
	for _, addr := range []string{"0.0.0.0:0", "[::]:0", ":0"} {
		s, err := server.New(m, server.Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = s.ListenAndServe(t.Context(), addr)
		if err == nil || !strings.Contains(err.Error(), "--insecure-serve-anyone") {
			t.Errorf("%s: %v", addr, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s, err = server.New(m, server.Options{InsecureServeAnyone: true}); err != nil {
			t.Fatal(err)
		}
		if err := s.ListenAndServe(ctx, addr); err != nil && ctx.Err() == nil {
			t.Errorf("%s, though allowed: %v", addr, err)
		}
	}
	if _, err := server.New(nil, server.Options{}); err == nil {
		t.Error("a server without a mirror")
	}
}
