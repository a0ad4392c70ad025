package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// grant is what a request is allowed to do, and for which caller. It starts with the
// credentials and ends with the rights; every handler after the guard has one.
type grant struct {
	// Without authentication both are nil, and everything is allowed. A public page may
	// have a reviewer and no caller, or neither.
	reviewer    *access.Reviewer
	caller      *access.Caller
	credentials access.Credentials

	authorized
	second      *authorized // of a difference between two objects: the right to read the other one
	reauthorize bool        // check again while the request is open
	// The request is forwarded without a review: the cluster decides by the caller's
	// own credentials.
	forwarded bool

	timeout time.Duration // requested by the caller; 0: none
	query   *read.Query   // of a REST route about objects
	other   *read.Query   // of a difference: the object that the first one is compared with
	params  params
	related []string // the kinds of objects that a tree has shown, with their namespaces
	visible []string // the namespaces read with visible=true; "*": all
}

// authorized is an action, and what was decided about it.
type authorized struct {
	attributes access.Attributes
	decision   *access.Decision // nil: there is none
}

type grantKey struct{}

func grantOf(r *http.Request) *grant { return r.Context().Value(grantKey{}).(*grant) }

// guard authenticates and authorizes a request before anything else is done for it. It
// denies every route that it does not know.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := grantOf(r)
		ctx, caller, leave, err := s.authenticate(r, g)
		if err == nil {
			defer leave()
			err = s.authorize(ctx, r, g)
			*routeOf(r).action = g.attributes
		}
		if err != nil {
			if !clientGone(r) {
				s.refuse(w, r, timeoutError(r, err))
			}
			return
		}
		if s.opts.Gate != nil {
			access.StripToken(r.Header)
		}
		if g.timeout > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, g.timeout, errTooLong)
			defer cancel()
			ctx = limited
		}
		if g.reauthorize {
			openCtx, stop := g.reviewer.Reauthorize(ctx, g.reviewer.Check(g.credentials, g.caller, g.attributes))
			defer stop()
			ctx = openCtx
		}
		next.ServeHTTP(w, r.WithContext(read.WithCaller(ctx, caller)))
	})
}

// authenticate finds the caller of a request, and counts the request against the
// caller's limit before its rights are reviewed. The returned context carries the
// caller.
func (s *Server) authenticate(r *http.Request, g *grant) (ctx context.Context, caller string, leave func(), err error) {
	owner := ""
	if g.reviewer != nil {
		// The reviews of the credentials count as well. The impersonated user is not
		// known yet.
		owner = g.reviewer.Owner(g.credentials)
	}
	if leave, err = s.limits.enterCaller(classOf(r), owner); err != nil {
		return nil, "", nil, err
	}
	if ctx, err = s.setCaller(r.Context(), routeOf(r), g); err != nil {
		leave()
		return nil, "", nil, err
	}
	if caller = callerKey(g, r); caller == owner {
		return ctx, caller, leave, nil
	}
	leave()
	leave, err = s.limits.enterCaller(classOf(r), caller)
	return ctx, caller, leave, err
}

// authorize authorizes a request of the caller in ctx.
func (s *Server) authorize(ctx context.Context, r *http.Request, g *grant) (err error) {
	rt := routeOf(r)
	var unread error // why a moment cannot be read, for callers that may read the resource
	switch rt.kind {
	case index, asset, health, ready:
		return nil // the content depends on the caller
	case metric:
		g.attributes = monitoring
	case clusterList, clusterOne:
		g.decision = allowedWithoutReview("the clusters are shown to all callers")
		return nil
	case tools:
		g.decision = allowedWithoutReview("each read of a tool is reviewed by itself")
		return nil
	case kubernetes:
		if rt.api == nil {
			return apierrors.NewBadRequest("the path is not valid")
		}
		if g.timeout, err = timeoutOf(r, rt); err != nil {
			return err
		}
		g.attributes = kubernetesAttributes(rt.api)
		if g.forwarded = s.mustForward(rt.api); g.forwarded {
			return nil
		}
		g.reauthorize = rt.watch
	case objects:
		if g.query, g.params, err = s.query(r.WithContext(ctx), rt); err != nil {
			return s.discoveryError(ctx, g, err)
		}
		if g.params.diff {
			if err = s.authorizeOther(ctx, g); err != nil {
				return err
			}
		}
		g.attributes, unread = s.pastAttributes(ctx, g.query)
		if g.reauthorize = rt.watch; g.params.visible || g.params.namespaces != nil {
			g.reauthorize = false // watchVisible and eachSeen review the namespaces themselves
			return unread
		}
	default:
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("this action is never allowed"))
	}
	if s.opts.Gate == nil {
		g.reauthorize = false
		g.decision = allowedWithoutReview("callers are not authenticated")
		return unread
	}
	decision, err := g.reviewer.Decide(ctx, g.caller, g.attributes)
	if err == nil || apierrors.IsForbidden(err) {
		g.decision = &decision
	}
	return cmp.Or(whyAll(err, g.query, g.attributes), unread)
}

// kubernetesAttributes returns what a request of the Kubernetes API does.
func kubernetesAttributes(api *kubeapi.Request) access.Attributes {
	if api.Query != nil {
		return attributesOf(api.Query)
	}
	return access.AttributesOf(api.Info)
}

// timeoutOf reads the timeout parameter of a Kubernetes API request; see
// WithRequestDeadline in k8s.io/apiserver/pkg/endpoints/filters.
func timeoutOf(r *http.Request, rt route) (time.Duration, error) {
	value := r.URL.Query().Get("timeout")
	if value == "" || rt.watch {
		return 0, nil
	}
	timeout, err := time.ParseDuration(value)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	return max(0, timeout), nil
}

// setCaller authenticates the request by the cluster that it is for. Requests about the
// mirror itself are authenticated by the default cluster. So a token is never sent to
// another cluster than the one it is meant for.
func (s *Server) setCaller(ctx context.Context, rt route, g *grant) (_ context.Context, err error) {
	if g.reviewer == nil { // nobody to authenticate; see verify
		if rt.kind == objects || rt.kind == kubernetes || rt.kind == clusterOne {
			return ctx, rt.clusterErr
		}
		return ctx, nil
	}
	if g.caller, err = g.reviewer.Authenticate(ctx, g.credentials); err != nil {
		g.caller = nil
		if rt.public() {
			return ctx, nil
		}
		return ctx, err
	}
	return access.WithCaller(request.WithUser(ctx, g.caller.User()), g.caller), nil
}

// publicClusterError is the error of a request without a cluster. It does not name the
// clusters that exist, because the caller is not authenticated.
func publicClusterError(rt route, err error) error {
	switch mirror.ReasonOf(err) {
	case mirror.UnknownCluster:
		return &mirror.Error{Reason: mirror.UnknownCluster, Message: "there is no such cluster"}
	case mirror.ClusterNeeded:
		if rt.kind == metric || rt.kind == clusterList {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("rights on the mirror itself are rights on its default cluster, and it has none: start the mirror with that cluster's --context first"))
		}
		return &mirror.Error{Reason: mirror.ClusterNeeded, Message: "there are several clusters; name one: /clusters/{cluster}/…"}
	}
	return err
}

// discoveryError is the error of an unknown resource. It tells which resources exist,
// so the caller needs the right to discover them.
func (s *Server) discoveryError(ctx context.Context, g *grant, err error) error {
	switch mirror.ReasonOf(err) {
	case mirror.UnknownResource, mirror.NotMirrored, mirror.Withheld, mirror.NotOffered:
		if s.opts.Gate != nil {
			return cmp.Or(g.reviewer.Authorize(ctx, g.caller, discovering), err)
		}
	}
	return err
}

// monitoring is the right to see the state of the mirror. It is the right that
// Prometheus needs on an API server.
var monitoring = access.Attributes{Verb: "get", Path: "/metrics"}

// discovering is the right to see what a cluster serves.
var discovering = access.Attributes{Verb: "get", Path: "/apis"}

// mayMonitor reports whether the caller may see the state of the mirror.
func (s *Server) mayMonitor(r *http.Request) bool { return s.allowed(r, monitoring) }

// allowed reports whether the caller may see a part of a page. The page does not wait
// long for a cluster that does not answer.
func (s *Server) allowed(r *http.Request, a access.Attributes) bool {
	if s.opts.Gate == nil {
		return true
	}
	g := grantOf(r)
	if g.caller == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), pagePatience)
	defer cancel()
	return g.reviewer.Authorize(ctx, g.caller, a) == nil
}

// pagePatience is how long a page that anybody may see in part waits for a review. Two
// of them are within the timeout of a probe.
const pagePatience = 2 * time.Second

// authenticated reports whether the caller is authenticated, or need not be.
func (s *Server) authenticated(r *http.Request) bool {
	return s.opts.Gate == nil || grantOf(r).caller != nil
}

// attributesOf returns the attributes that the API server would derive from the same
// request; see RequestInfoFactory in k8s.io/apiserver/pkg/endpoints/request.
func attributesOf(q *read.Query) access.Attributes {
	ask := q.Params()
	a := access.Attributes{
		Verb: string(ask.Verb), Group: ask.Resource.Group, Version: ask.Resource.Version, Resource: ask.Resource.Resource,
		Namespace: ask.Namespace, Name: ask.Name,
	}
	if ask.Verb == read.Get || ask.Legacy {
		if a.Group == "" && a.Resource == "namespaces" && a.Namespace == "" {
			a.Namespace = a.Name
		}
		return a
	}
	if ask.Fields != nil {
		a.FieldSelector = ask.Fields.String()
	}
	if ask.Labels != nil {
		a.LabelSelector = ask.Labels.String()
	}
	return a
}

// pastAttributes are the attributes of a query that may read the past. The rights of now
// govern it. But the present rights in a namespace say nothing about another namespace of
// the same name that was deleted: that takes the right in all namespaces.
func (s *Server) pastAttributes(ctx context.Context, q *read.Query) (access.Attributes, error) {
	a := attributesOf(q)
	if s.opts.Gate == nil {
		return a, nil
	}
	same, err := s.reader.SameNamespace(ctx, q)
	if err == nil && !same {
		a.Namespace = ""
	}
	return a, err
}

// whyAll adds to a refusal why the past of a namespace takes the right in all of them.
func whyAll(err error, q *read.Query, a access.Attributes) error {
	status := (*apierrors.StatusError)(nil)
	if q == nil || q.Params().Namespace == "" || a.Namespace != "" || !errors.As(err, &status) || !apierrors.IsForbidden(err) {
		return err
	}
	status = &apierrors.StatusError{ErrStatus: status.ErrStatus}
	status.ErrStatus.Message += fmt.Sprintf("; the namespace %s of now is younger than that moment, or does not exist, so its past takes the right in all namespaces", q.Params().Namespace)
	return status
}

// callerKey returns the key that a request counts against: the user or, without
// authentication, the remote host, which is "" for this machine.
func callerKey(g *grant, r *http.Request) string {
	if g.caller != nil {
		return g.caller.Key()
	}
	return remoteHost(r.RemoteAddr)
}
