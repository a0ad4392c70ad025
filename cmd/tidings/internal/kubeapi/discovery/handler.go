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
	"github.com/tidings-io/tidings/cmd/tidings/internal/flight"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/internal/reply"
)

const (
	// freshFor is how long an answer is served without a request to the cluster.
	freshFor = 2 * time.Second
	// patience is how long a caller waits for the cluster if there is an old answer,
	// and maxTime how long a request may take.
	patience = 2 * time.Second
	maxTime  = 30 * time.Second
	// maxSize is the maximum size of an answer.
	maxSize = 128 << 20
	// maxUnknown bounds the concurrent requests without an old answer.
	maxUnknown = 16
)

// Options configure a [Handler].
type Options struct {
	// Cluster returns the cluster of a request. Its error is the answer, as a Status
	// if it is one.
	Cluster func(context.Context) (*cluster.Cluster, error)
	// Everything says that requests the mirror cannot answer are passed through to the
	// cluster, so discovery includes them.
	Everything bool
	// CacheBytes bounds the cached answers of all clusters, which are compressed. 0
	// means 64 MiB. All answers of one cluster take about five.
	CacheBytes int64
	// Logger logs errors. nil means slog.Default().
	Logger *slog.Logger
}

// Handler answers requests for the paths in the package's documentation, without any
// prefix. It is safe for concurrent use.
type Handler struct {
	opts    Options
	log     *slog.Logger
	answers *otter.Cache[key, *answer]
	seats   chan struct{} // for requests without an old answer
	flights flight.Group[string, result]
	changed atomicTime // the last call of Invalidate
}

// New returns a Handler. It sends no requests.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, seats: make(chan struct{}, maxUnknown)}
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

// overhead is the approximate size of an answer without its bytes.
const overhead = 2048

// Answers reports whether a [Handler] serves a path.
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
	q, _ := newUpstreamRequest(c, r)
	a, err := h.answer(r.Context(), q)
	if err != nil {
		if r.Context().Err() == nil {
			reply.Error(w, err)
		}
		return
	}
	a.write(w, r)
}

// Invalidate makes all answers outdated. It is for callers that know of a change.
func (h *Handler) Invalidate() { h.changed.store(time.Now()) }

// answer returns a fresh answer, or a stale one if the cluster does not answer in time.
func (h *Handler) answer(ctx context.Context, q upstreamRequest) (*answer, error) {
	var old *answer
	if found, ok := h.answers.GetIfPresent(q.key); ok && !q.uncached && found.hash == q.hash {
		old = found
		if checked := old.checked.load(); checked.After(h.changed.load()) && time.Since(checked) < freshFor {
			return old.current(), nil
		}
	}
	// The request goes on for the other callers if the first one leaves.
	f := h.flights.Join(ctx, fmt.Sprintf("%p %s %q %t %q %q", q.cluster, q.method, q.path, q.slash, q.hash, q.accept), func(ctx context.Context, sent func()) result {
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
	case <-f.Done():
		now := f.Result()
		if now.err == nil {
			return now.answer, nil
		}
		if old == nil || !errors.Is(now.err, errDown) {
			return nil, now.err
		}
		h.log.Warn("a cluster does not answer discovery requests; serving its last answer", "cluster", q.cluster.Name(), "path", q.path, "fetched", old.fetched, "err", now.err)
	case <-late:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old.down.Store(true)
	return old.current(), nil
}

// result is the result of a request.
type result struct {
	answer *answer
	err    error
}

// renew requests the answer from the cluster, once there is a seat. ctx ends when no
// caller waits any more.
func (h *Handler) renew(ctx context.Context, q upstreamRequest, old *answer, sent func()) result {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	if old == nil {
		select {
		case h.seats <- struct{}{}:
			defer func() { <-h.seats }()
		case <-ctx.Done():
			return result{err: apierrors.NewTooManyRequests("too many discovery requests to the cluster are in progress", 1)}
		}
	}
	sent()
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), maxTime)
	defer cancel()
	a, err := h.update(ctx, q, old)
	return result{a, err}
}

// update requests the answer from the cluster, and caches it.
func (h *Handler) update(ctx context.Context, q upstreamRequest, old *answer) (*answer, error) {
	a, err := h.fetch(ctx, q, old)
	if err != nil {
		if old != nil {
			old.down.Store(true)
			old.checked.store(time.Now()) // do not retry at once
		}
		return nil, err
	}
	switch {
	case q.uncached:
	case a.status == http.StatusOK:
		a.hash = q.hash
		h.answers.Set(q.key, a)
	case old != nil:
		h.answers.Invalidate(q.key)
	}
	return a, nil
}
