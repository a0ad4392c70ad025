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

// A Call is a request of a controller other than the lists and watches of its
// reflectors.
type Call struct {
	Verb, Path string
	Status     int            // 0 without a response
	Body       map[string]any // normalized
}

func (c Call) String() string {
	body, err := json.Marshal(c.Body)
	if err != nil {
		panic(err) // cannot happen: it was decoded from JSON
	}
	return fmt.Sprintf("%s %s %d %s", c.Verb, c.Path, c.Status, body)
}

// A request is a list or a watch of a reflector.
type request struct {
	shape  string // the parameters, with versions and timeouts by their kind
	status int    // 0 without a response
	end    int    // status code in the error event of a watch
}

func (r request) String() string {
	if r.end != 0 {
		return fmt.Sprintf("%s: %d, then %d", r.shape, r.status, r.end)
	}
	return fmt.Sprintf("%s: %d", r.shape, r.status)
}

// answered reports whether the request got a response that the reflector does
// not simply retry.
func (r request) answered() bool {
	return r.status != 0 && r.status != http.StatusTooManyRequests && r.status < http.StatusInternalServerError
}

// recorder sits between a controller and the API server. It records the
// controller's requests, breaks its watches, and blocks lists and watches.
type recorder struct {
	collections []string // paths that the reflectors list and watch
	normalizer  normalizer

	mu       sync.Mutex
	open     chan struct{} // closed while lists and watches pass
	blocked  int
	streams  map[*stream]bool
	last     map[string]string // by collection: the last version a reflector has read
	requests map[string][]*request
	calls    []Call
}

func newRecorder(n normalizer, collections []string) *recorder {
	r := &recorder{collections: collections, normalizer: n, streams: map[*stream]bool{}, last: map[string]string{}, requests: map[string][]*request{}, open: make(chan struct{})}
	close(r.open)
	return r
}

// reset prepares for a new controller, whose reflectors know no version.
func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.last)
}

// drain returns what was recorded since the last drain.
func (r *recorder) drain() (requests map[string][]request, calls []Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, calls = map[string][]request{}, r.calls
	for collection, made := range r.requests {
		for _, request := range made {
			name := r.normalizer.text(collection)
			requests[name] = append(requests[name], *request)
		}
	}
	clear(r.requests)
	r.calls = nil
	return requests, calls
}

// count returns how many calls since the last drain match.
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

// wrap returns the transport of the controller's clients.
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

// call forwards a request that is not a reflector's.
func (r *recorder) call(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	call := Call{Verb: req.Method, Path: r.normalizer.text(req.URL.RequestURI())}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
		if call.Body, err = r.normalizer.object(body); err != nil {
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

// follow forwards a list or a watch once it is not blocked.
func (r *recorder) follow(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	collection, query := req.URL.Path, req.URL.Query()
	r.mu.Lock()
	request := &request{shape: shapeOf(query, r.last[collection])}
	r.blocked++
	open := r.open
	r.mu.Unlock()
	select {
	case <-open:
	case <-req.Context().Done():
	}
	r.mu.Lock()
	r.blocked--
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

// shapeOf returns the parameters of a list or a watch: versions by origin,
// timeouts by the range they are chosen from at random.
func shapeOf(query url.Values, last string) string {
	query = maps.Clone(query)
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
		query.Del("watch")
	}
	if v, ok := query["resourceVersion"]; ok && v[0] != "" && v[0] != "0" {
		query.Set("resourceVersion", "UNKNOWN")
		if v[0] == last {
			query.Set("resourceVersion", "LAST")
		}
	}
	if query.Has("continue") {
		query.Set("continue", "GIVEN")
	}
	if timeout, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && timeout >= 5*60 && timeout <= 10*60 {
		query.Set("timeoutSeconds", "5-10m")
		query.Del("timeout") // the same value
	}
	decoded, err := url.QueryUnescape(query.Encode()) // in the order of the keys
	if err != nil {
		panic(err) // cannot happen: encoded above
	}
	return verb + " " + decoded
}
