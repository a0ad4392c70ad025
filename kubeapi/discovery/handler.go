package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/maypok86/otter/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/flight"
	"github.com/tidings-io/tidings/kubeapi/internal/reply"
)

const (
	// believed is how long an answer is given without asking the cluster.
	believed = 2 * time.Second
	// patience is how long a caller waits for the cluster if there is an answer
	// from before, and most how long an answer may take at all.
	patience = 2 * time.Second
	most     = 30 * time.Second
	// largest is the size of an answer.
	largest = 128 << 20
	// unknown is how many questions a time are sent to which there is no answer
	// from before.
	unknown = 16
)

// Options of a [Handler].
type Options struct {
	// Cluster says which cluster a request is about. Its error is answered, as
	// a Status if it is one.
	Cluster func(context.Context) (*cluster.Cluster, error)
	// Everything says that what the mirror cannot do is done by the cluster
	// itself, so that discovery need not leave it out.
	Everything bool
	// CacheBytes is how many bytes of answers are kept, compressed, of all
	// clusters. 0 means 64 MiB; all that a cluster says of itself takes some
	// five.
	CacheBytes int64
	// Logger gets what goes wrong. nil means slog.Default().
	Logger *slog.Logger
}

// Handler answers requests for the paths in the package's documentation, without
// any prefix. It may be used by any number of goroutines.
type Handler struct {
	opts    Options
	log     *slog.Logger
	answers *otter.Cache[key, *answer]
	places  chan struct{} // of questions without an answer from before
	flights flight.Group[string, renewed]
	changed instant // when something was known to
}

// New returns a Handler. It asks nothing yet.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, places: make(chan struct{}, unknown)}
	h.answers = otter.Must(&otter.Options[key, *answer]{
		MaximumWeight: uint64(cmp.Or(max(opts.CacheBytes, 0), 64<<20)),
		Weigher:       func(k key, a *answer) uint32 { return uint32(len(a.packed) + len(k.path) + len(k.accept) + overhead) },
		Executor:      func(evict func()) { evict() },
	})
	if h.log == nil {
		h.log = slog.Default()
	}
	return h
}

// overhead is what an answer takes beside its bytes, by and large.
const overhead = 2048

// Answers says whether a path is one that a [Handler] answers.
func Answers(path string) bool {
	_, _, ok := partsOf(path)
	return ok
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !Answers(r.URL.Path):
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		reply.Error(w, apierrors.NewMethodNotSupported(schema.GroupResource{}, r.Method))
		return
	}
	c, err := h.opts.Cluster(r.Context())
	if err != nil {
		reply.Error(w, err)
		return
	}
	q, _ := questionOf(c, r)
	a, err := h.answer(r.Context(), q)
	if err != nil {
		if r.Context().Err() == nil {
			reply.Error(w, err)
		}
		return
	}
	a.write(w, r)
}

// Invalidate has the clusters asked again about everything, because something
// is known to have changed.
func (h *Handler) Invalidate() { h.changed.store(time.Now()) }

// answer finds an answer that is fresh, or else the best there is.
func (h *Handler) answer(ctx context.Context, q question) (*answer, error) {
	var old *answer
	if found, ok := h.answers.GetIfPresent(q.key); ok && !q.once && found.hash == q.hash {
		old = found
		if checked := old.checked.load(); checked.After(h.changed.load()) && time.Since(checked) < believed {
			return old.asItIs(), nil
		}
	}
	// Whoever asks first may leave; the answer is for all who ask.
	f := h.flights.Join(ctx, fmt.Sprintf("%p %s %q %t %q %q", q.cluster, q.method, q.path, q.slash, q.hash, q.accept), func(ctx context.Context, sent func()) renewed {
		return h.renew(ctx, q, old, sent)
	})
	defer h.flights.Leave(f)
	var late <-chan time.Time
	if old != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-f.Landed():
		now := f.Answer()
		if now.err == nil {
			return now.answer, nil
		}
		if old == nil || !errors.Is(now.err, errDown) {
			return nil, now.err
		}
		h.log.Warn("a cluster does not say what it serves; what it said before is said again", "cluster", q.cluster.Name(), "path", q.path, "said", old.said, "err", now.err)
	case <-late:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old.down.Store(true)
	return old.asItIs(), nil
}

// renewed is what came of a question.
type renewed struct {
	answer *answer
	err    error
}

// renew asks the cluster once there is a place. The context ends when nobody waits
// for that any more.
func (h *Handler) renew(ctx context.Context, q question, old *answer, sent func()) renewed {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	if old == nil {
		select {
		case h.places <- struct{}{}:
			defer func() { <-h.places }()
		case <-ctx.Done():
			return renewed{err: apierrors.NewTooManyRequests("too many questions of what a cluster serves are under way", 1)}
		}
	}
	sent()
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	a, err := h.ask(ctx, q, old)
	return renewed{a, err}
}

// ask asks the cluster, and keeps what it says.
func (h *Handler) ask(ctx context.Context, q question, old *answer) (*answer, error) {
	a, err := h.fetch(ctx, q, old)
	if err != nil {
		if old != nil {
			old.down.Store(true)
			old.checked.store(time.Now()) // not again at once
		}
		return nil, err
	}
	switch {
	case q.once:
	case a.status == http.StatusOK:
		a.hash = q.hash
		h.answers.Set(q.key, a)
	case old != nil:
		h.answers.Invalidate(q.key)
	}
	return a, nil
}
