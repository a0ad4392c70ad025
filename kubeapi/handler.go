package kubeapi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/lru"

	"github.com/tidings-io/tidings/internal/apipath"
	printing "github.com/tidings-io/tidings/kubeapi/table"
	"github.com/tidings-io/tidings/mirror"
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
// so on, without any prefix. The request's context says of which cluster, see
// [WithCluster], and may carry a RequestInfo of
// k8s.io/apiserver/pkg/endpoints/request. A watch ends with the context.
type Handler struct {
	mirror *mirror.Mirror
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

// New returns a Handler of what m holds.
func New(m *mirror.Mirror, opts Options) *Handler {
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
	return &Handler{mirror: m, opts: opts, log: opts.Logger, cache: newCache(opts.CacheBytes), answers: newAnswers(opts.AnswerBytes), columns: lru.New(maxDefinitions)}
}

// TooSlowWatches is how many watches have ended because they were read too slowly.
func (h *Handler) TooSlowWatches() uint64 { return h.tooSlowWatches.Load() }

type clusterKey struct{}

// WithCluster says which cluster a request is for; "" is the default one.
func WithCluster(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clusterKey{}, name)
}

// ClusterFrom is the name given by [WithCluster].
func ClusterFrom(ctx context.Context) string {
	name, _ := ctx.Value(clusterKey{}).(string)
	return name
}

var infos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// RequestInfo reads what a request is for off its path, as kube-apiserver does. A
// query that cannot be understood says no more than whether it is a watch; it is
// not logged, and the request is refused when it is its turn.
func RequestInfo(r *http.Request) (*request.RequestInfo, error) {
	if r.URL.RawQuery != "" {
		query := r.URL.Query()
		if metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &internalversion.ListOptions{}) != nil {
			plain, target := *r, *r.URL
			target.RawQuery = ""
			if watch, ok := query["watch"]; ok {
				target.RawQuery = url.Values{"watch": watch[:1]}.Encode()
			}
			plain.URL = &target
			r = &plain
		}
	}
	return infos.NewRequestInfo(r)
}

// call is one request.
type call struct {
	*Handler
	w    http.ResponseWriter
	r    *http.Request
	info *request.RequestInfo
	kind kind
	q    mirror.Query // of the target and namespace; and of the name, for a get
	form form
	// oldPath says that it is a watch by its path, /api/v1/watch/…: such have no
	// bookmark behind what there is.
	oldPath bool
	// until is when an answer that has been let in is to be done, where that is later
	// than the end of the request's time.
	until time.Time
	// printer of the kind, once a Table has been asked for.
	printer *printing.Printer
}

// ServeHTTP implements [http.Handler].
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		var err error
		if info, err = RequestInfo(r); err != nil {
			notFoundPage(w)
			return
		}
	}
	c := &call{Handler: h, w: w, r: r, info: info}
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
	group := c.info.APIGroup
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
	if !c.info.IsResourceRequest {
		notFoundPage(c.w)
		return nil
	}
	if err := c.resolve(); err != nil {
		if !errors.Is(err, errElse) {
			return err
		}
		if c.opts.Else != nil {
			c.opts.Else.ServeHTTP(c.w, c.r)
			return nil
		}
		return c.refusal()
	}
	if c.kind.gvk.Empty() {
		return nil // answered
	}
	if err := c.acceptable(); err != nil {
		return err
	}
	if err := c.negotiate(); err != nil {
		return err
	}
	switch c.info.Verb {
	case "get":
		return c.get()
	default:
		return c.listOrWatch()
	}
}

// resolve finds the resource that the request is for.
func (c *call) resolve() error {
	gvr := schema.GroupVersionResource{Group: c.info.APIGroup, Version: c.info.APIVersion, Resource: c.info.Resource}
	target, err := c.mirror.ResolveGVR(c.r.Context(), ClusterFrom(c.r.Context()), gvr)
	read := c.r.Method == http.MethodGet && slices.Contains([]string{"get", "list", "watch"}, c.info.Verb)
	switch mirror.ReasonOf(err) {
	case "":
		if err != nil {
			return err
		}
	case mirror.NotMirrored, mirror.Withheld:
		if c.opts.Else != nil {
			return errElse
		}
		return err
	case mirror.UnknownResource:
		if c.opts.Else != nil { // which knows better: discovery is never of this very moment
			return errElse
		}
		return c.unknown()
	default:
		return err
	}
	r := target.Resource
	c.q = mirror.Query{Target: target, Namespace: c.info.Namespace}
	if !read || c.info.Subresource != "" {
		return errElse
	}
	// What is read is what the path says, the whole of it.
	at := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: c.info.Namespace, Name: c.name()}
	if _, ok := at.Is(c.info.Path); !ok || r.GVR() != gvr || r.Namespaced && c.q.Namespace == "" && c.info.Verb == "get" {
		return c.unknown()
	}
	if !r.Namespaced {
		if c.q.Namespace = ""; c.info.Namespace != "" && c.info.Namespace != c.info.Name {
			return c.unknown()
		}
	}
	if !r.Can("list") || !r.Can("watch") || c.info.Verb == "get" && !r.Can("get") {
		return errElse
	}
	c.kind = kindOf(r)
	return nil
}

// name is the one in the path, which a field selector does not change.
func (c *call) name() string {
	if len(c.info.Parts) > 1 {
		return c.info.Parts[1]
	}
	return ""
}

// watchTimeout is how long a watch lasts that does not say so: between half an
// hour and an hour, as in kube-apiserver.
func watchTimeout() time.Duration { return 30*time.Minute + rand.N(30*time.Minute) }
