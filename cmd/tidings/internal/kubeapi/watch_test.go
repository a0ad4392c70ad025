package kubeapi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// frames are the events of a watch, without bookmarks.
func frames(a answer) [][]byte {
	var out [][]byte
	rest := a.body
	if strings.HasPrefix(a.header.Get("Content-Type"), protobuf) {
		for len(rest) >= 4 {
			size := 4 + int(binary.BigEndian.Uint32(rest))
			if size > len(rest) {
				break
			}
			if !bytes.Contains(rest[:min(size, 20)], []byte("BOOKMARK")) {
				out = append(out, rest[:size])
			}
			rest = rest[size:]
		}
		return out
	}
	for line := range bytes.Lines(rest) {
		if !bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)) {
			out = append(out, line)
		}
	}
	return out
}

// TestWatchesAreTheSame watches many changes through a mirror and through its API server,
// from the same versions, with the same selectors and in the same forms. The events must be
// the same to the byte, in the same order.
func TestWatchesAreTheSame(t *testing.T) {
	cp := controlplane.Start(t)
	r := start(t, cp.AdminConfig(), mirror.Options{Resources: []string{mirror.Everything, "secrets"}}, server.Options{})
	p := populate(t, r.theirs)
	ctx, cancel := context.WithCancel(t.Context())
	var living sync.WaitGroup
	living.Go(func() { p.live(ctx, rand.New(rand.NewPCG(7, 8))) })
	t.Cleanup(living.Wait)
	t.Cleanup(cancel)
	rnd := rand.New(rand.NewPCG(9, 10))
	var asks []ask
	for range 60 {
		k := things[rnd.IntN(11)]
		q := ask{path: k.path(pick(rnd, "", "", "default", "kubeapi-a"), ""), query: url.Values{}}
		if chance(rnd, 2) {
			q.query.Set("labelSelector", pick(rnd, "app=red", "app!=blue", "n in (1,2)"))
		}
		if chance(rnd, 4) {
			q.query.Set("fieldSelector", pick(rnd, append(k.fields, "metadata.name!=a")...))
		}
		list := r.ours.ask(q)
		version := gjson.GetBytes(list.body, "metadata.resourceVersion").Str
		if version == "" {
			t.Fatalf("%s: %s", q.url(), list)
		}
		q.accept = pick(rnd, "", "application/json", protobuf, "application/json"+partialOne+"v1", protobuf+partialOne+"v1,"+protobuf+",application/json")
		if k.prefix == example && q.accept == protobuf {
			q.accept = ""
		}
		q.query.Set("watch", "1")
		q.query.Set("timeoutSeconds", "4")
		q.query.Set("allowWatchBookmarks", pick(rnd, "true", "false"))
		q.query.Set("resourceVersion", version)
		asks = append(asks, q)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	events := 0
	for _, q := range asks {
		all.Go(func() {
			var theirs, ours answer
			var both sync.WaitGroup
			var errs [2]error
			both.Go(func() { theirs, errs[0] = r.theirs.try(t.Context(), q) })
			both.Go(func() { ours, errs[1] = r.ours.try(t.Context(), q) })
			both.Wait()
			if errs != [2]error{} {
				t.Errorf("%s: %v", q.url(), errs)
				return
			}
			if theirs.code != http.StatusOK || ours.code != http.StatusOK || theirs.header.Get("Content-Type") != ours.header.Get("Content-Type") {
				t.Errorf("%s: %s\nnot %s", q.url(), ours, theirs)
				return
			}
			a, b := frames(theirs), frames(ours)
			// The two streams end at different times.
			n := min(len(a), len(b))
			if len(a)-n > 40 || len(b)-n > 40 {
				t.Errorf("%s: %d events, not %d", q.url(), len(b), len(a))
			}
			for i := range n {
				if !bytes.Equal(a[i], b[i]) {
					t.Errorf("%s %s: event %d is\n%.700q\nnot\n%.700q", q.url(), q.accept, i, b[i], a[i])
					return
				}
			}
			mu.Lock()
			events += n
			mu.Unlock()
		})
	}
	all.Wait()
	t.Logf("%d watches, %d events", len(asks), events)
	if events < 100 {
		t.Error("that is no test")
	}
	cancel()
	living.Wait()
	// Without changes, whole streams of initial events can be compared, except for the
	// versions of their bookmarks.
	for _, k := range things {
		for _, accept := range []string{"", protobuf + ",application/json", "application/json" + partialOne + "v1"} {
			if k.untyped && accept != "" {
				continue
			}
			q := ask{path: k.path("default", ""), accept: accept, query: url.Values{"watch": {"1"}, "timeoutSeconds": {"3"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}}}
			all.Go(func() {
				r.ours.get(q.path) // the first list of a resource may take longer than the watch
				theirs, err1 := r.theirs.try(t.Context(), q)
				ours, err2 := r.ours.try(t.Context(), q)
				if err1 != nil || err2 != nil {
					t.Errorf("%s: %v %v", q.url(), err1, err2)
					return
				}
				if !bytes.Contains(ours.body, []byte("initial-events-end")) {
					t.Errorf("%s %s: %s: no bookmark", q.url(), accept, ours)
				}
				theirs.body, ours.body = withoutBookmarks(theirs), withoutBookmarks(ours)
				if why := differ(theirs, ours); why != "" {
					t.Errorf("%s %s: %s", q.url(), accept, why)
				}
			})
		}
	}
	all.Wait()
}
