package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/lru"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/kubeapi/internal/reply"
)

const (
	// believed is how long an answer is given without asking the cluster.
	believed = 2 * time.Second
	// patience is how long a caller waits for the cluster if there is an answer
	// from before, and most how long an answer may take at all.
	patience = 2 * time.Second
	most     = 30 * time.Second
	// kept is the number of answers that are kept, each compressed. A cluster
	// has some hundred, if clients ask for all of its schemas.
	kept = 2048
	// longest is how long an Accept header may be for its answer to be kept.
	longest = 512
)

// Options of a [Handler].
type Options struct {
	// Cluster says which cluster a request is about. Its error is answered, as
	// a Status if it is one.
	Cluster func(context.Context) (*cluster.Cluster, error)
	// Everything says that what the mirror cannot do is done by the cluster
	// itself, so that discovery need not leave it out.
	Everything bool
	// Logger gets what goes wrong. nil means slog.Default().
	Logger *slog.Logger
}

// Handler answers requests for the paths in the package's documentation, without
// any prefix. It may be used by any number of goroutines.
type Handler struct {
	opts    Options
	log     *slog.Logger
	answers *lru.Cache // question to *answer
	flights singleflight.Group
	changed instant // when something was known to
}

// New returns a Handler. It asks nothing yet.
func New(opts Options) *Handler {
	h := &Handler{opts: opts, log: opts.Logger, answers: lru.New(kept)}
	if h.log == nil {
		h.log = slog.Default()
	}
	return h
}

// question is what an answer is an answer to.
type question struct {
	cluster             *cluster.Cluster
	path, query, accept string
}

// Answers says whether a path is one that a [Handler] answers.
func Answers(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	case "openapi":
		return len(parts) == 2 && parts[1] == "v2" || len(parts) >= 2 && parts[1] == "v3"
	case "version":
		return len(parts) == 1
	}
	return false
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
	q := question{cluster: c, path: r.URL.Path, accept: strings.Join(r.Header["Accept"], ",")}
	if hash := r.URL.Query().Get("hash"); hash != "" && strings.HasPrefix(q.path, "/openapi/v3/") {
		q.query = "hash=" + hash
	}
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
	if found, ok := h.answers.Get(q); ok {
		old = found.(*answer)
		if checked := old.checked.load(); checked.After(h.changed.load()) && time.Since(checked) < believed {
			return old.asItIs(), nil
		}
	}
	// Whoever asks first may leave; the answer is for all who ask.
	flight := h.flights.DoChan(fmt.Sprintf("%p %q %q %q", q.cluster, q.path, q.query, q.accept), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
		defer cancel()
		return h.renew(ctx, q, old)
	})
	var late <-chan time.Time
	if old != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case result := <-flight:
		if result.Err == nil {
			return result.Val.(*answer), nil
		}
		if old == nil || !errors.Is(result.Err, errDown) {
			return nil, result.Err
		}
		h.log.Warn("a cluster does not say what it serves; what it said before is said again", "cluster", q.cluster.Name(), "path", q.path, "said", old.said, "err", result.Err)
	case <-late:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	old.down.Store(true)
	return old.asItIs(), nil
}

// renew asks the cluster, and keeps what it says.
func (h *Handler) renew(ctx context.Context, q question, old *answer) (*answer, error) {
	a, err := h.fetch(ctx, q, old)
	if err != nil {
		if old != nil {
			old.down.Store(true)
			old.checked.store(time.Now()) // not again at once
		}
		return nil, err
	}
	if a.status == http.StatusOK && len(q.accept) <= longest {
		h.answers.Add(q, a)
	} else {
		h.answers.Remove(q)
	}
	return a, nil
}
