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

	"github.com/tidings-io/tidings/kubeapi/internal/reply"
)

// answer is what a cluster said. Nothing but its state ever changes.
type answer struct {
	status int
	header http.Header // what of it is handed on
	packed []byte      // the body, compressed
	size   int         // of the body; less than 0: it is not known
	etag   string      // the cluster's, to ask whether it has changed
	hash   string      // of the question
	said   time.Time
	stale  bool // as it is handed out
	*state
}

type state struct {
	// checked is when the cluster last said so, or was last asked in vain.
	checked instant
	// down says that the cluster has been asked in vain since it said so.
	down atomic.Bool
}

// instant is a moment that many may read and set. It is one of the monotonic
// clock: nothing is believed for longer because somebody has set back the time.
type instant struct{ at atomic.Pointer[time.Time] }

func (i *instant) store(t time.Time) { i.at.Store(&t) }

// load is the zero time before the first store.
func (i *instant) load() (t time.Time) {
	if at := i.at.Load(); at != nil {
		t = *at
	}
	return t
}

// handed are the headers of an answer that are handed on.
var handed = []string{"Content-Type", "Etag", "Vary", "Cache-Control", "Expires", "Last-Modified", "Location", "Retry-After", "Warning"}

func newAnswer(status int, header http.Header, body []byte) *answer {
	now := time.Now()
	a := &answer{status: status, header: http.Header{}, packed: pack(body), size: len(body), etag: header.Get("Etag"), said: now, state: new(state)}
	for _, name := range handed {
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
	_, _ = z.Write(body) // into memory
	_ = z.Close()
	return b.Bytes()
}

// again is the same answer, said once more.
func (a *answer) again() *answer {
	out := *a
	out.said, out.state = time.Now(), new(state)
	out.checked.store(out.said)
	return &out
}

// asItIs is the answer with a note of whether the cluster still says so.
func (a *answer) asItIs() *answer {
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
		h.Set("Age", strconv.Itoa(int(time.Since(a.said).Seconds())))
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
		_, _ = w.Write(a.packed) // a client that is gone is none of our business
	default:
		if z, err := gzip.NewReader(bytes.NewReader(a.packed)); err == nil {
			_, _ = io.Copy(w, z)
		}
	}
}

// matches says whether an If-None-Match names an entity tag.
func matches(header, etag string) bool {
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || strings.TrimPrefix(tag, "W/") == strings.TrimPrefix(etag, "W/") {
			return true
		}
	}
	return false
}
