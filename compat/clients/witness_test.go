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

// witness notes what a client is told, and what is wrong with it: whatever was
// not there and is changed or deleted, or is told twice, or goes back.
type witness struct {
	lists  atomic.Int64 // that it has asked for
	over   func()       // ends the client, if that may be
	ending atomic.Bool

	mu     sync.Mutex
	there  map[string]string // resourceVersion by name
	events []string
	wrong  []string
}

func newWitness() *witness { return &witness{there: map[string]string{}} }

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// asks counts the lists that a client asks for, streamed or not.
type asks struct {
	next http.RoundTripper
	w    *witness
}

func (a asks) RoundTrip(r *http.Request) (*http.Response, error) {
	if q := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/configmaps") && (q.Get("watch") == "" || q.Get("sendInitialEvents") == "true") {
		a.w.lists.Add(1)
	}
	return a.next.RoundTrip(r)
}

func (w *witness) complain(about string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, about)
}

func (w *witness) note(kind, name, version string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, known := w.there[name]
	if known != (kind != "ADDED") {
		w.wrong = append(w.wrong, fmt.Sprintf("%s of %s at %s, which was at %q", kind, name, version, have))
	}
	if kind == "MODIFIED" && !newer(version, have) {
		w.wrong = append(w.wrong, fmt.Sprintf("%s at %s was told after it was at %s", name, version, have))
	}
	if kind == "DELETED" {
		delete(w.there, name)
		w.events = append(w.events, kind+" "+name)
		return
	}
	w.there[name] = version
	w.events = append(w.events, kind+" "+name+"@"+version)
}

// handler is for an informer.
func (w *witness) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.object("ADDED", o) },
		UpdateFunc: func(_, o any) { w.object("MODIFIED", o) },
		DeleteFunc: func(o any) { w.object("DELETED", o) },
	}
}

func (w *witness) object(kind string, o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	m := o.(metav1.Object)
	w.note(kind, m.GetName(), m.GetResourceVersion())
}

// since is what was told since there were that many events.
func (w *witness) since(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events[min(n, len(w.events)):])
}

func (w *witness) is(want map[string]string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Equal(w.there, want)
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
}
