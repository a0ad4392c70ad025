package churn

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Call is a request of a controller that is not one of its reflectors'.
type Call struct {
	Verb, Path string
	Status     int            // 0 if there was no answer
	Body       map[string]any // without what is another in each run
}

func (c Call) String() string {
	body, err := json.Marshal(c.Body)
	if err != nil {
		panic(err) // it came out of JSON
	}
	return fmt.Sprintf("%s %s %d %s", c.Verb, c.Path, c.Status, body)
}

// A request is a list or a watch of a reflector.
type request struct {
	shape  string // what was asked for, with versions and timeouts by their kind
	status int    // 0 if there was no answer
	end    int    // the status in the error that a watch told
}

func (r request) String() string {
	if r.end != 0 {
		return fmt.Sprintf("%s: %d, then %d", r.shape, r.status, r.end)
	}
	return fmt.Sprintf("%s: %d", r.shape, r.status)
}

// answered is false for what a reflector tries again for as long as it takes.
func (r request) answered() bool {
	return r.status != 0 && r.status != http.StatusTooManyRequests && r.status < http.StatusInternalServerError
}

// recorder stands between a controller and the API server: it notes what the
// controller asks for, breaks its watches, and holds back lists and watches.
type recorder struct {
	collections []string // paths of what the controller's reflectors follow
	normal      normal

	mu       sync.Mutex
	open     chan struct{} // closed: lists and watches go through
	held     int
	streams  map[*stream]bool
	last     map[string]string // by collection: the version that a reflector has come to
	requests map[string][]*request
	calls    []Call
}

func newRecorder(n normal, collections []string) *recorder {
	r := &recorder{collections: collections, normal: n, streams: map[*stream]bool{}, last: map[string]string{}, requests: map[string][]*request{}, open: make(chan struct{})}
	close(r.open)
	return r
}

// forget prepares for a controller that starts: its reflectors know no version.
func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// take returns what was noted since it was called last.
func (r *recorder) take() (requests map[string][]request, calls []Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, calls = map[string][]request{}, r.calls
	for collection, made := range r.requests {
		for _, request := range made {
			name := r.normal.text(collection)
			requests[name] = append(requests[name], *request)
		}
	}
	clear(r.requests)
	r.calls = nil
	return requests, calls
}

// count is how many calls there were since take that concern is true of.
func (r *recorder) count(concern func(Call) bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.calls {
		if concern(c) {
			n++
		}
	}
	return n
}

// wrap is the transport of the controller's clients.
func (r *recorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.Method == http.MethodGet && slices.Contains(r.collections, req.URL.Path) {
			return r.follow(next, req)
		}
		return r.call(next, req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// call passes on a request that is not a reflector's.
func (r *recorder) call(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	call := Call{Verb: req.Method, Path: r.normal.text(req.URL.RequestURI())}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
		if call.Body, err = r.normal.object(body); err != nil {
			return nil, fmt.Errorf("read what %s %s sends: %w", req.Method, req.URL.Path, err)
		}
	}
	resp, err := next.RoundTrip(req)
	if err == nil {
		call.Status = resp.StatusCode
	}
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	return resp, err
}

// follow passes on a list or a watch, when the gate is open.
func (r *recorder) follow(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	collection, query := req.URL.Path, req.URL.Query()
	r.mu.Lock()
	request := &request{shape: shapeOf(query, r.last[collection])}
	r.held++
	open := r.open
	r.mu.Unlock()
	select {
	case <-open:
	case <-req.Context().Done():
	}
	r.mu.Lock()
	r.held--
	r.requests[collection] = append(r.requests[collection], request)
	r.mu.Unlock()

	resp, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	request.status = resp.StatusCode
	r.mu.Unlock()
	if resp.StatusCode != http.StatusOK {
		return resp, nil
	}
	if query.Get("watch") != "" {
		s := &stream{r: r, request: request, collection: collection, body: resp.Body, initial: query.Get("sendInitialEvents") == "true", since: time.Now()}
		r.mu.Lock()
		r.streams[s] = true
		r.mu.Unlock()
		resp.Body = s
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("read the list %s: %w", collection, err)
	}
	r.mu.Lock()
	r.last[collection] = list.ResourceVersion
	r.mu.Unlock()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// shapeOf tells what a list or a watch asks for: versions by where they come
// from, timeouts by the range in which they are chosen at random.
func shapeOf(query url.Values, last string) string {
	query = maps.Clone(query)
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
		query.Del("watch")
	}
	if v, ok := query["resourceVersion"]; ok && v[0] != "" && v[0] != "0" {
		query.Set("resourceVersion", "UNHEARD-OF")
		if v[0] == last {
			query.Set("resourceVersion", "LAST")
		}
	}
	if query.Has("continue") {
		query.Set("continue", "GIVEN")
	}
	if timeout, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && timeout >= 5*60 && timeout <= 10*60 {
		query.Set("timeoutSeconds", "5-10m")
		query.Del("timeout") // the same once more
	}
	decoded, err := url.QueryUnescape(query.Encode()) // in the order of the keys
	if err != nil {
		panic(err) // it was encoded in this line
	}
	return verb + " " + decoded
}
