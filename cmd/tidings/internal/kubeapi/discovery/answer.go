package discovery

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/internal/reply"
)

// answer is an answer of a cluster. It is immutable, except for its state.
type answer struct {
	status  int
	header  http.Header // the forwarded headers
	packed  []byte      // the body, compressed
	size    int         // of the body; negative: unknown
	etag    string      // the cluster's, for conditional requests
	hash    string      // of the request
	fetched time.Time
	stale   bool // set in copies, see current
	*state
}

type state struct {
	// checked is the time of the last request, successful or not.
	checked atomicTime
	// down says that a request has failed since the answer was fetched.
	down atomic.Bool
}

// atomicTime is a time that can be read and set concurrently. It has a monotonic clock
// reading, so that an answer is not considered fresh for longer if the clock is set back.
type atomicTime struct{ at atomic.Pointer[time.Time] }

func (i *atomicTime) store(t time.Time) { i.at.Store(&t) }

// load is the zero time before the first store.
func (i *atomicTime) load() (t time.Time) {
	if at := i.at.Load(); at != nil {
		t = *at
	}
	return t
}

// forwardedHeaders are the headers of an answer that are forwarded.
var forwardedHeaders = []string{"Content-Type", "Etag", "Vary", "Cache-Control", "Expires", "Last-Modified", "Location", "Retry-After", "Warning"}

func newAnswer(status int, header http.Header, body []byte) *answer {
	now := time.Now()
	a := &answer{status: status, header: http.Header{}, packed: pack(body), size: len(body), etag: header.Get("Etag"), fetched: now, state: new(state)}
	for _, name := range forwardedHeaders {
		if values := header.Values(name); len(values) > 0 {
			a.header[name] = values
		}
	}
	a.checked.store(now)
	return a
}

func pack(body []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(body) // cannot fail: it writes to memory
	_ = z.Close()
	return b.Bytes()
}

// revalidated returns the same answer, fetched now.
func (a *answer) revalidated() *answer {
	out := *a
	out.fetched, out.state = time.Now(), new(state)
	out.checked.store(out.fetched)
	return &out
}

// current returns the answer, marked as stale if the cluster is down.
func (a *answer) current() *answer {
	out := *a
	out.stale = a.down.Load()
	return &out
}

func (a *answer) write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	for name, values := range a.header {
		h[name] = slices.Clone(values)
	}
	reply.Relocate(h, r)
	if a.stale { // RFC 9111
		h.Set("Age", strconv.Itoa(int(time.Since(a.fetched).Seconds())))
		h.Add("Warning", `110 tidings "the cluster does not answer; this is what it said before"`)
	}
	if etag := h.Get("Etag"); etag != "" && a.status == http.StatusOK && matches(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if a.status == http.StatusOK && !strings.Contains(strings.Join(h.Values("Vary"), ","), "Accept-Encoding") {
		h.Add("Vary", "Accept-Encoding")
	}
	compressed := a.status == http.StatusOK && r.Method != http.MethodHead && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
	switch {
	case compressed:
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(a.packed)))
	case a.size >= 0:
		h.Set("Content-Length", strconv.Itoa(a.size))
	}
	w.WriteHeader(a.status)
	switch {
	case r.Method == http.MethodHead:
	case compressed:
		_, _ = w.Write(a.packed) // an error means that the client is gone
	default:
		if z, err := gzip.NewReader(bytes.NewReader(a.packed)); err == nil {
			_, _ = io.Copy(w, z)
		}
	}
}

// matches reports whether an If-None-Match header matches an entity tag.
func matches(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
