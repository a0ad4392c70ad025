package kubeapi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/lru"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// Options configure a [Handler]. The zero value is usable.
type Options struct {
	// Else serves requests that are not reads of a mirrored resource: writes,
	// subresources, resources that cannot be watched or are not mirrored. If it is
	// nil, they are refused.
	Else http.Handler
	// BookmarkEvery is the approximate time between two bookmarks of a watch that
	// allows them. 0 means a minute, as in kube-apiserver.
	BookmarkEvery time.Duration
	// CacheBytes bounds the memory of cached encodings other than the mirror's own
	// JSON. 0 means 64 MiB.
	CacheBytes int64
	// AnswerBytes bounds the memory of cached lists, which are compressed. 0 means
	// 64 MiB.
	AnswerBytes int64
	// Admit, if not nil, is called before an expensive answer is made. If it returns
	// an error, that is the answer: 429 with a Retry-After.
	Admit Admit
	// Logger logs errors. nil means slog.Default().
	Logger *slog.Logger
}

// Handler answers the resource requests of the Kubernetes API, such as /api/v1/pods,
// without any prefix.
type Handler struct {
	reader  *read.Reader
	opts    Options
	log     *slog.Logger
	cache   *encodingCache
	lists   *listCache
	streams atomic.Int64 // open watches
	// tooSlowWatches counts watches that ended because they were read too slowly.
	tooSlowWatches atomic.Uint64
	// columns are the columns of custom resources, by definitionOf.
	columns *lru.Cache
}

// New returns a Handler that answers from r.
func New(r *read.Reader, opts Options) *Handler {
	if opts.BookmarkEvery <= 0 {
		opts.BookmarkEvery = time.Minute
	}
	if opts.CacheBytes <= 0 {
		opts.CacheBytes = 64 << 20
	}
	if opts.AnswerBytes <= 0 {
		opts.AnswerBytes = 64 << 20
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	return &Handler{reader: r, opts: opts, log: opts.Logger, cache: newEncodingCache(opts.CacheBytes), lists: newListCache(opts.AnswerBytes), columns: lru.New(maxDefinitions)}
}

// TooSlowWatches returns the number of watches that have ended because they were read
// too slowly.
func (h *Handler) TooSlowWatches() uint64 { return h.tooSlowWatches.Load() }

// call is one request.
type call struct {
	*Handler
	*Request
	w    http.ResponseWriter
	r    *http.Request
	q    *read.Query // of the Request
	kind kind
	form form
	// until is the deadline of an admitted answer, if later than that of the request.
	until time.Time
}

// Serve answers a request that [Parse] has parsed. It does not authorize: the request
// must have been authorized before. A watch ends with the context of r. If the cause of
// that is a Status, the watch sends it to the client.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, q *Request) {
	c := &call{Handler: h, Request: q, w: w, r: r, q: q.Query}
	w.Header().Set("Cache-Control", "no-cache, private")
	err := c.serve()
	switch r.Context().Err() {
	case nil:
	case context.DeadlineExceeded:
		if err != nil {
			err = apierrors.NewTimeoutError(context.Cause(r.Context()).Error(), 2)
		}
	default:
		return // the client is gone
	}
	if err != nil {
		c.fail(err)
	}
}

// unknown answers a request for an unknown resource in one of the two ways of
// kube-apiserver: a Status for the groups it serves itself, a plain page for others.
func (c *call) unknown() error {
	group := c.Info.APIGroup
	if group == "" || scheme.Scheme.IsGroupRegistered(group) || slices.Contains(serverGroups, group) {
		out := plainStatus(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		out.ErrStatus.Details = &metav1.StatusDetails{}
		return out
	}
	notFoundPage(c.w)
	return nil
}

// errElse says that the mirror cannot answer the request.
var errElse = errors.New("not a read of a mirrored resource")

func (c *call) serve() error {
	if !c.Info.IsResourceRequest {
		notFoundPage(c.w)
		return nil
	}
	known, err := c.resolve()
	if errors.Is(err, errElse) {
		if c.opts.Else != nil {
			c.opts.Else.ServeHTTP(c.w, c.r)
			return nil
		}
		return c.refusal()
	}
	if !known || err != nil {
		return err
	}
	if err := c.acceptable(); err != nil {
		return err
	}
	if err := c.negotiate(); err != nil {
		return err
	}
	if c.invalid != nil {
		return c.invalid
	}
	if c.params.Verb == read.Get {
		return c.getObject()
	}
	if err := c.selectable(); err != nil {
		return err
	}
	if c.list.Watch {
		return c.watch()
	}
	return c.listObjects()
}

// resolve finds the resource of the request. If there is none, known is false, and
// unless err is set the request has been answered.
func (c *call) resolve() (known bool, err error) {
	switch {
	case c.Info.Verb == "proxy" && c.opts.Else == nil:
		return false, c.unknown() // a verb of old API servers
	case !c.reads && (c.opts.Else != nil || c.r.Method != http.MethodGet):
		return false, errElse
	}
	r, err := c.params.Cluster.ResourceFor(c.r.Context(), c.params.Resource)
	switch reason := mirror.ReasonOf(err); {
	case (reason == mirror.NotMirrored || reason == mirror.Withheld) && c.opts.Else != nil:
		return false, errElse
	case reason == mirror.UnknownResource && c.opts.Else != nil: // Else may know it: discovery may be outdated
		return false, errElse
	case reason == mirror.UnknownResource:
		return false, c.unknown()
	case err != nil:
		return false, err
	case !c.reads:
		return false, errElse
	case c.notResource, r.GVR() != c.params.Resource, !r.Namespaced && (c.params.Namespace != "" || c.noNamespace):
		return false, c.unknown()
	case r.Namespaced && c.params.Namespace == "" && c.params.Name != "":
		// As in kube-apiserver.
		switch custom := kindOf(r).custom; {
		case c.noNamespace && !custom:
			return false, apierrors.NewBadRequest("Namespace parameter required.")
		case c.noNamespace, !c.params.Legacy, !custom:
			return false, c.unknown()
		}
	}
	if !r.Can("list") || !r.Can("watch") || c.params.Verb == read.Get && !r.Can("get") {
		return false, errElse
	}
	c.kind = kindOf(r)
	if c.q != nil {
		err = c.q.Bind(r)
	}
	return true, err
}

// watchTimeout is the duration of a watch without a timeout: between half an hour and an
// hour, as in kube-apiserver.
func watchTimeout() time.Duration { return 30*time.Minute + rand.N(30*time.Minute) }
