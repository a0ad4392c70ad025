package fakeapi

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

// Fault describes how a request fails. The fields combine: a response can be
// delayed and then cut.
type Fault struct {
	// Delay delays the request before anything else.
	Delay time.Duration
	// Until delays the request until the channel is closed.
	Until <-chan struct{}
	// Drop breaks the connection without a response.
	Drop bool
	// Status replaces the response. Code is the HTTP status;
	// details.retryAfterSeconds becomes the Retry-After header.
	Status *metav1.Status

	// CutAfter breaks the connection after this many bytes of the response's
	// body.
	CutAfter int
	// CutAfterEvents breaks the connection of a watch after this many whole
	// frames, in the middle of the next. Zero means never; -1 cuts the first.
	CutAfterEvents int
	// Twice sends every event of a watch twice.
	Twice bool
	// NoBookmarks omits the bookmarks of a watch, except the one that ends
	// the initial events.
	NoBookmarks bool
	// NoInitialEventsEnd omits the bookmark that ends the initial events of a
	// streamed list, so its client waits forever.
	NoInitialEventsEnd bool
	// NoWatchList answers sendInitialEvents with 422, as servers without the
	// WatchList feature do.
	NoWatchList bool
}

// Injector returns the fault of a request, nil for none. It is called for every
// request and must be safe for concurrent use.
type Injector func(*Request) *Fault

// RequestKind is the key of the request counters.
type RequestKind struct {
	Verb     string
	Resource schema.GroupVersionResource // empty for paths that are not about a resource
}

// interceptor applies the fault of a request. It returns the fault, nil for
// none, and the writer to go on with, nil if the request has been answered.
type interceptor func(http.ResponseWriter, *Request) (*Fault, http.ResponseWriter)

type faults struct {
	mu        sync.Mutex
	injectors map[int]Injector
	intercept interceptor // nil without injectors
	next      int
	down      bool
	counts    map[RequestKind]int
}

// Inject adds an injector and returns a function that removes it. Injectors are
// called in the order in which they were added; the first fault applies.
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
	// Only this reference keeps the code of faults in a binary.
	f.intercept = f.apply
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.injectors, id)
	}
}

// StatusFault returns a fault that answers with an error of
// k8s.io/apimachinery/pkg/api/errors, such as
// errors.NewTooManyRequests("slow down", 2).
func StatusFault(err apierrors.APIStatus) *Fault {
	status := err.Status()
	return &Fault{Status: &status}
}

// Times limits an injector to its first n faults.
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

// SetDown takes the cluster down, as if the API server had crashed, or up again.
// While it is down, open watches and new requests break, and an [InProcess]
// cluster refuses connections. The objects are kept.
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

// Requests returns the number of requests of each kind so far, including failed
// ones and open watches.
func (c *Cluster) Requests() map[RequestKind]int {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return maps.Clone(c.faults.counts)
}

// Count returns the number of requests of one kind. See [Cluster.Requests].
func (c *Cluster) Count(verb string, gvr schema.GroupVersionResource) int {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.counts[RequestKind{verb, gvr}]
}

// ResetCounts resets all request counters to zero.
func (c *Cluster) ResetCounts() {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.counts = nil
}

// count counts a request. It reports whether the cluster is down.
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

func (c *Cluster) interceptor() interceptor {
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	return c.faults.intercept
}

// apply is the interceptor of a cluster with injectors.
func (f *faults) apply(w http.ResponseWriter, req *Request) (*Fault, http.ResponseWriter) {
	fault := f.of(req)
	switch {
	case fault == nil:
		return nil, w
	case !fault.before(w, req):
		return fault, nil
	case fault.CutAfter > 0:
		return fault, &cutWriter{ResponseWriter: w, left: fault.CutAfter}
	}
	return fault, w
}

// of returns the fault of a request, or nil.
func (f *faults) of(req *Request) *Fault {
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

// before applies the parts of a fault that precede the response. It reports
// whether the request is still to be served.
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

// cutWriter breaks the connection after it has written left bytes.
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

// retryAfter sets the Retry-After header of a Status.
func retryAfter(w http.ResponseWriter, status *metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
}
