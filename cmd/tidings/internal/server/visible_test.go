package server_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var accessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")

// rights are the rights in an in-memory cluster.
type rights struct {
	mu sync.Mutex
	of map[string]bool // "user verb namespace/name"; * for a namespace means all
}

func (r *rights) allow(u fakeapi.User, a fakeapi.Access) bool {
	if u.Name == "mirror" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[u.Name+" "+a.Verb+" "+a.Namespace+a.Path] || a.Path == "" && r.of[u.Name+" "+a.Verb+" *"]
}

// grant gives or removes a right to verbs in a namespace.
func (r *rights) grant(granted bool, user, namespace string, verbs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range verbs {
		r.of[user+" "+v+" "+namespace] = granted
	}
}

// guardedDemo is a server of an in-memory cluster with a short AllowTTL.
func guardedDemo(t *testing.T, o options) (*rig, *rights) {
	t.Helper()
	who := &rights{of: map[string]bool{}}
	o.cluster.Allow = who.allow
	o.cluster.Users = map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}, "bob-token": {Name: "bob"}, "alice-other-token": {Name: "alice", Groups: []string{"others"}}}
	gate, err := access.NewGate(access.Options{AllowTTL: 200 * time.Millisecond, DenyTTL: 50 * time.Millisecond, NamespaceDenyTTL: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	o.server.Gate = gate
	c := fakeapi.New(o.cluster)
	if o.fault != nil {
		c.Inject(o.fault)
	}
	config, stop := fakeapi.InProcess(c)
	t.Cleanup(stop)
	config.BearerToken = "mirror-token"
	return serve(t, c, config, o), who
}

func TestVisibleIsTheUnionOfWhatMayBeListed(t *testing.T) {
	r, who := guardedDemo(t, options{})
	for _, ns := range []string{"a", "b", "c"} {
		for i := range 3 {
			r.set(ns, fmt.Sprint("o", i), "1")
		}
	}
	if a := r.as("alice-token", "/cm"); a.code != http.StatusForbidden {
		t.Errorf("%d %s", a.code, a.body)
	}
	visible := func(query string) answer {
		a := r.as("alice-token", "/cm?visible=true"+query)
		if a.code != http.StatusOK {
			t.Fatalf("%s: %d %s", query, a.code, a.body)
		}
		return a
	}
	same(t, "with no right", visible("").names(), []string{})
	who.grant(true, "alice", "a", "list")
	who.grant(true, "alice", "c", "list")
	who.grant(true, "alice", "b", "get", "watch") // which is not to list
	eventually(t, "the right is seen", func() bool { return len(visible("").names()) == 6 })
	same(t, "of two", visible("").names(), []string{"a/o0", "a/o1", "a/o2", "c/o0", "c/o1", "c/o2"})
	same(t, "selected", visible("&fieldSelector=metadata.name=o1").names(), []string{"a/o1", "c/o1"})
	page := visible("&limit=4")
	same(t, "a page", page.names(), []string{"a/o0", "a/o1", "a/o2", "c/o0"})
	same(t, "the next", visible("&limit=4&continue="+page.Continue).names(), []string{"c/o1", "c/o2"})
	same(t, "in the named cluster", r.as("alice-token", "/clusters/test/core/v1/configmaps?visible=true").names(), visible("").names())

	// A page is not served after its right has ended.
	who.grant(false, "alice", "c", "list")
	eventually(t, "the right has gone", func() bool { return len(visible("").names()) == 3 })
	if a := r.as("alice-token", "/cm?visible=true&limit=4&continue="+page.Continue); a.code != http.StatusGone {
		t.Errorf("%d %s", a.code, a.body)
	}
	who.grant(true, "alice", "*", "list")
	eventually(t, "everything is seen", func() bool { return len(visible("").names()) == 9 })

	for path, want := range map[string]int{
		"/nodes?visible=true": 400, "/cm?visible=true&namespace=a": 400, "/core/v1/configmaps/a?visible=true": 400,
		"/core/v1/configmaps/a/o1?visible=true": 400, "/cm?visible=true&source=live": 400, "/cm?visible=perhaps": 400,
	} {
		if a := r.as("alice-token", path); a.code != want {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}

	// What exists is not revealed without the right to discover it.
	if a := r.as("alice-token", "/things"); a.code != http.StatusForbidden || len(a.Exists) != 0 {
		t.Errorf("%d %s", a.code, a.body)
	}
	who.grant(true, "alice", "/apis", "get")
	eventually(t, "who may is told", func() bool { return r.as("alice-token", "/things").code == http.StatusNotFound })

	few, who := guardedDemo(t, options{server: server.Options{MaxVisible: 2}})
	for _, ns := range []string{"a", "b", "c"} {
		few.set(ns, "o", "1")
	}
	if a := few.as("bob-token", "/cm?visible=true"); a.code != http.StatusBadRequest || !strings.Contains(a.Error, "more than 2 namespaces") {
		t.Errorf("%d %s", a.code, a.body)
	}
	who.grant(true, "bob", "*", "list")
	eventually(t, "who may list all needs no looking through", func() bool { return few.as("bob-token", "/cm?visible=true").code == http.StatusOK })
}

func TestVisibleWatchFollowsTheRights(t *testing.T) {
	r, who := guardedDemo(t, options{})
	first := r.set("a", "one", "1")
	hidden := r.set("b", "one", "1")
	who.grant(true, "alice", "a", "watch")
	w := r.eventSourceAs("/cm?visible=true&watch=true", "alice-token")
	w.expect("ADDED a/one@"+first, "SYNCED")
	r.set("b", "two", "1")
	second := r.set("a", "two", "1")
	w.expect("ADDED a/two@" + second)

	// A watch resumes as long as the namespaces are the same.
	third := r.set("a", "three", "1")
	w.connect()
	w.expect("ADDED a/three@" + third)

	who.grant(true, "alice", "b", "watch")
	w.expect("RESET", "ADDED a/one@"+first, "ADDED a/three@"+third, "ADDED a/two@"+second)
	m, err := w.next()
	r.must(err)
	if m.String() != "ADDED b/one@"+hidden {
		t.Fatal(m)
	}
	if m, err = w.next(); err != nil || m.Object.String() != "b/two" {
		t.Fatal(m, err)
	}
	w.expect("SYNCED")
	at := w.lastID
	who.grant(false, "alice", "a", "watch")
	if m, err = w.next(); err != nil || m.Type != "RESET" {
		t.Fatal(m, err)
	}
	for m.Type != "SYNCED" {
		if m, err = w.next(); err != nil || m.Object != nil && m.Object.Metadata.Namespace != "b" {
			t.Fatal(m, err)
		}
	}

	// A namespace that comes is seen if it may be, and a position of other
	// namespaces is of no use.
	who.grant(true, "alice", "new", "watch")
	r.set("new", "one", "1")
	w.expect("RESET")
	w.close()
	w.lastID = at
	w.connect()
	w.expect("RESET")
	for m = (message{}); m.Type != "SYNCED"; {
		if m, err = w.next(); err != nil || m.Object != nil && m.Object.Metadata.Namespace == "a" {
			t.Fatal(m, err)
		}
	}
	r.cluster.RemoveUser("alice-token")
	for m.event != "end" {
		if m, err = w.next(); err != nil {
			t.Fatal(m, err)
		}
	}
	if !strings.Contains(m.data, "Unauthorized") {
		t.Error(m.data)
	}
	if _, err := w.next(); err != io.EOF {
		t.Error(err)
	}
}

// However rights and objects change, a watch of what is visible ends up with what is
// visible, and never gets an event of a namespace without a grant.
func TestVisibleWatchConverges(t *testing.T) {
	r, who := guardedDemo(t, options{})
	rnd := rand.New(rand.NewPCG(9, 10))
	namespaces := []string{"a", "b", "c", "never"}
	granted := map[string]bool{}
	r.set("a", "o0", "0")
	w := r.eventSourceAs("/cm?visible=true&watch=true", "alice-token")
	state, wrong := map[string]bool{}, ""
	var mu sync.Mutex
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := w.next()
			if err != nil {
				return
			}
			mu.Lock()
			switch {
			case m.Type == "RESET":
				clear(state)
			case m.Type == "DELETED":
				delete(state, m.Object.String())
			case m.Object != nil:
				state[m.Object.String()] = true
				if m.Object.Metadata.Namespace == "never" {
					wrong = m.String()
				}
			}
			mu.Unlock()
		}
	}()
	for i := range 300 {
		ns, name := namespaces[rnd.IntN(len(namespaces))], fmt.Sprint("o", rnd.IntN(3))
		_, missing := r.cluster.Get(configMaps, ns, name)
		switch rnd.IntN(6) {
		case 0:
			if ns != "never" {
				granted[ns] = !granted[ns]
				who.grant(granted[ns], "alice", ns, "watch")
			}
		case 1:
			if missing == nil {
				r.must(r.cluster.Delete(configMaps, ns, name))
			}
		default:
			r.set(ns, name, fmt.Sprint(i))
		}
		if i%50 == 49 { // so that answers run out in between
			asked := r.cluster.Count("create", accessReviews)
			eventually(t, "the cluster is asked again", func() bool { return r.cluster.Count("create", accessReviews) > asked })
		}
	}
	eventually(t, "what is told is what is there and may be seen", func() bool {
		want := map[string]bool{}
		for _, ns := range namespaces {
			for i := range 3 {
				if _, missing := r.cluster.Get(configMaps, ns, fmt.Sprint("o", i)); missing == nil && granted[ns] {
					want[fmt.Sprint(ns, "/o", i)] = true
				}
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return maps.Equal(state, want)
	})
	w.close()
	<-done
	if wrong != "" {
		t.Errorf("told of a namespace that was never granted: %s", wrong)
	}
}
