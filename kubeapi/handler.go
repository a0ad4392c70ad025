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

	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// Options of a [Handler]. The zero value is usable.
type Options struct {
	// Else answers what is not a read of a mirrored resource: writes,
	// subresources, resources that cannot be watched or are not mirrored. nil
	// refuses it.
	Else http.Handler
	// BookmarkEvery is how often a watch that allows bookmarks gets one, about. 0
	// means a minute, as in kube-apiserver.
	BookmarkEvery time.Duration
	// CacheBytes is how much memory may be spent on encodings other than the
	// mirror's own. 0 means 64 MiB.
	CacheBytes int64
	// AnswerBytes is how much memory may be spent on lists that have been put
	// together and compressed, for those who ask for the same one again. 0 means
	// 64 MiB.
	AnswerBytes int64
	// Admit, if not nil, is asked before an answer is made that costs much. Its
	// error is the answer otherwise: 429, and when to come back.
	Admit Admit
	// Logger gets what goes wrong. nil means slog.Default().
	Logger *slog.Logger
}

// Handler answers the resource requests of the Kubernetes API: /api/v1/pods and
// so on, without any prefix.
type Handler struct {
	reader *read.Reader
	opts   Options
	log    *slog.Logger
	cache  *cache
	// answers are whole lists, for those who ask for the same one again.
	answers *answers
	streams atomic.Int64 // watches that are open
	// tooSlowWatches have ended because they were read too slowly.
	tooSlowWatches atomic.Uint64
	// columns are those of custom resources, by definitionOf.
	columns *lru.Cache
}

// New returns a Handler that answers what r reads.
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
	return &Handler{reader: r, opts: opts, log: opts.Logger, cache: newCache(opts.CacheBytes), answers: newAnswers(opts.AnswerBytes), columns: lru.New(maxDefinitions)}
}

// TooSlowWatches is how many watches have ended because they were read too slowly.
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
	// until is when an answer that has been let in is to be done, where that is later
	// than the end of the request's time.
	until time.Time
}

// Serve answers a request that [Parse] has read. Whoever calls it has seen to it that
// the caller may do what the request asks for. A watch ends with the context of r; if
// that has a cause that is a Status, the client is told.
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
		return // nobody waits
	}
	if err != nil {
		c.fail(err)
	}
}

// unknown answers to a path that means nothing, in one of the two ways in which
// kube-apiserver does: its own groups know what they do not have.
func (c *call) unknown() error {
	group := c.Info.APIGroup
	if group == "" || scheme.Scheme.IsGroupRegistered(group) || slices.Contains(serverKinds, group) {
		out := plainStatus(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
		out.ErrStatus.Details = &metav1.StatusDetails{}
		return out
	}
	notFoundPage(c.w)
	return nil
}

// errElse says that the request is not for the mirror to answer.
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
	if c.ask.Verb == read.Get {
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

// resolve finds the resource that the request is for. known is false if there is
// none, and the request has been answered so if there is no error.
func (c *call) resolve() (known bool, err error) {
	switch {
	case c.Info.Verb == "proxy" && c.opts.Else == nil:
		return false, c.unknown() // which there was once
	case !c.reads && (c.opts.Else != nil || c.r.Method != http.MethodGet):
		return false, errElse
	}
	r, err := c.ask.Cluster.ResourceFor(c.r.Context(), c.ask.Resource)
	switch reason := mirror.ReasonOf(err); {
	case (reason == mirror.NotMirrored || reason == mirror.Withheld) && c.opts.Else != nil:
		return false, errElse
	case reason == mirror.UnknownResource && c.opts.Else != nil: // which knows better: discovery is never of this very moment
		return false, errElse
	case reason == mirror.UnknownResource:
		return false, c.unknown()
	case err != nil:
		return false, err
	case !c.reads:
		return false, errElse
	case c.stray, r.GVR() != c.ask.Resource, !r.Namespaced && (c.ask.Namespace != "" || c.noNamespace):
		return false, c.unknown()
	case r.Namespaced && c.ask.Namespace == "" && c.ask.Name != "":
		// As kube-apiserver has it.
		switch custom := kindOf(r).custom; {
		case c.noNamespace && !custom:
			return false, apierrors.NewBadRequest("Namespace parameter required.")
		case c.noNamespace, !c.ask.Legacy, !custom:
			return false, c.unknown()
		}
	}
	if !r.Can("list") || !r.Can("watch") || c.ask.Verb == read.Get && !r.Can("get") {
		return false, errElse
	}
	c.kind = kindOf(r)
	if c.q != nil {
		err = c.q.Bind(r)
	}
	return true, err
}

// watchTimeout is how long a watch lasts that does not say so: between half an
// hour and an hour, as in kube-apiserver.
func watchTimeout() time.Duration { return 30*time.Minute + rand.N(30*time.Minute) }
