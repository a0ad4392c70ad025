package demo

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Fault is how a request goes wrong. The fields combine: a response can be
// delayed and then cut.
type Fault struct {
	// Delay holds the request back before anything else happens to it.
	Delay time.Duration
	// Until holds the request back until the channel is closed.
	Until <-chan struct{}
	// Drop breaks the connection without an answer.
	Drop bool
	// Status is the answer instead of the real one. Code is its HTTP status;
	// details.retryAfterSeconds becomes the Retry-After header.
	Status *metav1.Status

	// CutAfter breaks the connection after this many bytes of the response's
	// body.
	CutAfter int
	// CutAfterEvents breaks the connection of a watch in the middle of the
	// frame after this many whole ones. Zero means never; -1 cuts the first.
	CutAfterEvents int
	// Twice sends every event of a watch twice.
	Twice bool
	// NoBookmarks leaves out a watch's bookmarks, except the one that ends
	// the initial events.
	NoBookmarks bool
	// NoInitialEventsEnd leaves out the bookmark that ends the initial
	// events of a streamed list, so that its client waits for ever.
	NoInitialEventsEnd bool
	// NoWatchList answers sendInitialEvents with 422, as servers do that
	// have no WatchList feature.
	NoWatchList bool
}

// Injector decides the fault of a request. It returns nil for none. It is
// called for every request, also by many goroutines at once.
type Injector func(*Request) *Fault

// RequestKind is what requests are counted by.
type RequestKind struct {
	Verb     string
	Resource schema.GroupVersionResource // empty for paths that are not about a resource
}

type faults struct {
	mu        sync.Mutex
	injectors map[int]Injector
	next      int
	down      bool
	counts    map[RequestKind]int
}

// Inject adds an injector and returns how to take it away again. Injectors
// are asked in the order in which they were added; the first fault counts.
func (c *Cluster) Inject(injector Injector) (remove func()) {
	f := &c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.next
	f.next++
	if f.injectors == nil {
		f.injectors = map[int]Injector{}
	}
	f.injectors[id] = injector
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.injectors, id)
	}
}

// StatusFault answers with an error of k8s.io/apimachinery/pkg/api/errors,
// like errors.NewTooManyRequests("slow down", 2).
func StatusFault(err apierrors.APIStatus) *Fault {
	status := err.Status()
	return &Fault{Status: &status}
}

// Times limits an injector to the first n faults it would cause.
func Times(n int, injector Injector) Injector {
	var mu sync.Mutex
	return func(req *Request) *Fault {
		mu.Lock()
		defer mu.Unlock()
		if n == 0 {
			return nil
		}
		fault := injector(req)
		if fault != nil {
			n--
		}
		return fault
	}
}

// On limits an injector to requests of one verb and resource.
func On(verb string, gvr schema.GroupVersionResource, fault *Fault) Injector {
	return func(req *Request) *Fault {
		if req.Verb == verb && req.Resource == gvr {
			return fault
		}
		return nil
	}
}

// SetDown takes the cluster down or up again, as a crashed API server: open
// watches and new requests break, and dialling an [InProcess] cluster is
// refused. What is stored stays.
func (c *Cluster) SetDown(down bool) {
	c.faults.mu.Lock()
	c.faults.down = down
	c.faults.mu.Unlock()
	if down {
		c.endWatches(func(*resource) bool { return true }, ending{abort: true})
	}
}

func (c *Cluster) isDown() bool {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.down
}

// Requests returns how many requests have come in of each kind, including
// those that failed and, as verb watch, those that are still open.
func (c *Cluster) Requests() map[RequestKind]int {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return maps.Clone(c.faults.counts)
}

// Count is the number of requests of one kind. See [Cluster.Requests].
func (c *Cluster) Count(verb string, gvr schema.GroupVersionResource) int {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.counts[RequestKind{verb, gvr}]
}

// ResetCounts sets all request counters to zero.
func (c *Cluster) ResetCounts() {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.counts = nil
}

// count notes that a request has come in. It reports whether the cluster is
// down.
func (c *Cluster) count(req *Request) (down bool) {
	f := &c.faults
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.counts == nil {
		f.counts = map[RequestKind]int{}
	}
	kind := RequestKind{Verb: req.Verb}
	if req.IsResource() {
		kind.Resource = req.Resource
	}
	f.counts[kind]++
	return f.down
}

// faultOf asks the injectors what happens to a request.
func (c *Cluster) faultOf(req *Request) *Fault {
	f := &c.faults
	f.mu.Lock()
	injectors := make([]Injector, 0, len(f.injectors))
	for _, id := range slices.Sorted(maps.Keys(f.injectors)) {
		injectors = append(injectors, f.injectors[id])
	}
	f.mu.Unlock()
	for _, injector := range injectors {
		if fault := injector(req); fault != nil {
			return fault
		}
	}
	return nil
}

// before does what a fault does before the request is served. It reports
// whether there is anything left to serve.
func (f *Fault) before(w http.ResponseWriter, req *Request) bool {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-req.HTTP.Context().Done():
			return false
		}
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-req.HTTP.Context().Done():
			return false
		}
	}
	if f.Drop {
		panic(http.ErrAbortHandler)
	}
	if f.Status != nil {
		writeStatus(w, req.HTTP, &apierrors.StatusError{ErrStatus: *f.Status})
		return false
	}
	return true
}

// cutWriter breaks the connection when it has written enough.
type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) < w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	_, _ = w.ResponseWriter.Write(p[:w.left])
	w.Flush()
	panic(http.ErrAbortHandler)
}

func (w *cutWriter) Flush() {
	if f, ok := w.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// retryAfter copies the advice of a Status to where clients look for it.
func retryAfter(w http.ResponseWriter, status *metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
}
