package clients

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// observer records the events of a client, and errors among them: a change or
// deletion of an unknown object, an event delivered twice, a version that
// decreases.
type observer struct {
	lists  atomic.Int64 // requested by the client
	over   func()       // ends the client; nil if it cannot be ended
	ending atomic.Bool

	mu     sync.Mutex
	there  map[string]string // resourceVersion by name
	events []string
	wrong  []string
}

func newObserver() *observer { return &observer{there: map[string]string{}} }

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// listCounter counts the lists that a client requests, streamed or not.
type listCounter struct {
	next http.RoundTripper
	o    *observer
}

func (c listCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/configmaps") && (q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") {
		c.o.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}

func (o *observer) fail(about string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wrong = append(o.wrong, about)
}

func (o *observer) note(kind, name, version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	have, known := o.there[name]
	if known != (kind != "ADDED") {
		o.wrong = append(o.wrong, fmt.Sprintf("%s of %s at %s, which was at %q", kind, name, version, have))
	}
	if kind == "MODIFIED" && !newer(version, have) {
		o.wrong = append(o.wrong, fmt.Sprintf("%s at %s was delivered after it was at %s", name, version, have))
	}
	if kind == "DELETED" {
		delete(o.there, name)
		o.events = append(o.events, kind+" "+name)
		return
	}
	o.there[name] = version
	o.events = append(o.events, kind+" "+name+"@"+version)
}

// handler returns an event handler for an informer.
func (o *observer) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { o.object("ADDED", obj) },
		UpdateFunc: func(_, obj any) { o.object("MODIFIED", obj) },
		DeleteFunc: func(obj any) { o.object("DELETED", obj) },
	}
}

func (o *observer) object(kind string, obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	m := obj.(metav1.Object)
	o.note(kind, m.GetName(), m.GetResourceVersion())
}

// since returns the events after the first n.
func (o *observer) since(n int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events[min(n, len(o.events)):])
}

func (o *observer) knows(want map[string]string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Equal(o.there, want)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(10 * time.Millisecond) // poll interval
	}
}
