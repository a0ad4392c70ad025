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

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// grant is what a request has been allowed, and to whom. Nothing behind the
// guard runs without one.
type grant struct {
	// Without authentication both are nil, and everything is allowed. A page
	// that is public may have a reviewer and no caller.
	reviewer    *access.Reviewer
	caller      *access.Caller
	credentials access.Credentials

	done access.Attributes // what has been asked about
	held bool              // and is to be asked about again while the request is open
	// handed on: nothing has been asked, and nothing is answered here. The
	// cluster decides, by the caller's own credentials.
	handed bool

	timeout time.Duration // that the caller wants for its request; 0: none
	query   *read.Query   // of a REST route about objects
	params  params
}

type grantKey struct{}

func grantOf(r *http.Request) *grant { return r.Context().Value(grantKey{}).(*grant) }

// guard finds out who makes a request and whether they may, before anything
// else is done for it. A route that it does not know is nobody's.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := &grant{}
		ctx, caller, leave, err := s.enter(r, g)
		if err == nil {
			defer leave()
			err = s.admit(ctx, r, g)
		}
		if err != nil {
			if !unheard(r) {
				s.refuse(w, r, inTime(r, err))
			}
			return
		}
		if s.opts.Gate != nil {
			access.Strip(r.Header)
		}
		if g.timeout > 0 {
			limited, cancel := context.WithTimeoutCause(ctx, g.timeout, errTooLong)
			defer cancel()
			ctx = limited
		}
		if g.held {
			held, stop := g.reviewer.Hold(ctx, g.reviewer.Check(g.credentials, g.caller, g.done))
			defer stop()
			ctx = held
		}
		ctx = context.WithValue(read.WithCaller(ctx, caller), grantKey{}, g)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// enter finds out who makes a request, and counts it as that caller's before
// anything is asked about its rights. The context knows the caller.
func (s *Server) enter(r *http.Request, g *grant) (ctx context.Context, caller string, leave func(), err error) {
	if g.credentials, err = s.credentials(r); err != nil {
		return nil, "", nil, err
	}
	if ctx, err = s.identify(r.Context(), routeOf(r), g); err != nil {
		return nil, "", nil, err
	}
	caller = callerKey(g, r)
	leave, err = s.limits.enterCaller(classOf(r), caller)
	return ctx, caller, leave, err
}

// admit decides about a request of the caller that the context knows.
func (s *Server) admit(ctx context.Context, r *http.Request, g *grant) (err error) {
	rt := routeOf(r)
	switch rt.kind {
	case index, health, ready:
		return nil // what they show depends on who asks
	case metric:
		g.done = monitoring
	case clusterList, clusterOne:
		// Who is known may know what there is.
		return nil
	case kubernetes:
		if rt.api == nil {
			return apierrors.NewBadRequest("the path cannot be understood")
		}
		if g.timeout, err = timeoutOf(r, rt); err != nil {
			return err
		}
		if g.done = access.AttributesOf(rt.api.Info); rt.api.Query != nil {
			g.done = attributesOf(rt.api.Query)
		}
		if g.handed = s.handsOn(rt.api); g.handed {
			return nil
		}
		g.held = rt.watch
	case objects:
		if g.query, g.params, err = query(r.WithContext(ctx), rt); err != nil {
			return s.undiscovered(ctx, g, err)
		}
		g.done = attributesOf(g.query)
		if g.held = g.params.watch; g.params.visible {
			g.held = false // which namespaces is asked as it goes on
			return nil
		}
	default:
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("nobody may do that"))
	}
	if s.opts.Gate == nil {
		g.held = false
		return nil
	}
	return g.reviewer.Authorize(ctx, g.caller, g.done)
}

// timeoutOf reads how long a request of the Kubernetes API may take at most, if its
// caller says so, see WithRequestDeadline in k8s.io/apiserver/pkg/endpoints/filters.
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

// identify finds out who makes a request, by the cluster that it is about. What
// is about the mirror itself is the default cluster's to answer for: a token is
// sent to no cluster but the one it is meant for.
func (s *Server) identify(ctx context.Context, rt route, g *grant) (context.Context, error) {
	public := rt.kind == index || rt.kind == health || rt.kind == ready
	if rt.kind == health || public && g.credentials.None() {
		return ctx, nil
	}
	if s.opts.Gate == nil {
		if needed := rt.kind == objects || rt.kind == kubernetes || rt.kind == clusterOne; needed {
			return ctx, rt.nowhere
		}
		return ctx, nil
	}
	if g.credentials.None() {
		return ctx, apierrors.NewUnauthorized("Unauthorized")
	}
	if rt.nowhere != nil {
		if public {
			return ctx, nil
		}
		return ctx, nowhere(rt, rt.nowhere)
	}
	var err error
	if g.reviewer, err = s.opts.Gate.Reviewer(rt.cluster.Connection(), s.mirror.Uses); err != nil {
		return ctx, err
	}
	// What the cluster is asked for it counts as the caller's too. On whose behalf it
	// acts is not known yet.
	leave, err := s.limits.enterCaller(rt.class(), g.reviewer.Payer(g.credentials))
	if err != nil {
		return ctx, err
	}
	defer leave()
	if g.caller, err = g.reviewer.Authenticate(ctx, g.credentials); err != nil {
		if public {
			g.caller = nil
			return ctx, nil
		}
		return ctx, err
	}
	return access.WithCaller(request.WithUser(ctx, g.caller.User()), g.caller), nil
}

// nowhere is why there is no cluster to ask about a caller. It does not name
// those there are, because the caller is nobody yet.
func nowhere(rt route, err error) error {
	switch mirror.ReasonOf(err) {
	case mirror.UnknownCluster:
		return &mirror.Error{Reason: mirror.UnknownCluster, Message: "there is no such cluster"}
	case mirror.ClusterNeeded:
		if rt.kind == metric || rt.kind == clusterList {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("rights on the mirror itself are those on its default cluster, and it has none: start it with that cluster's --context first"))
		}
		return &mirror.Error{Reason: mirror.ClusterNeeded, Message: "there are several clusters; say which is meant: /clusters/{cluster}/…"}
	}
	return err
}

// undiscovered is the error of a resource that is not there. What there is, and
// what there is not, is for those to know who may discover it.
func (s *Server) undiscovered(ctx context.Context, g *grant, err error) error {
	switch mirror.ReasonOf(err) {
	case mirror.UnknownResource, mirror.NotMirrored, mirror.Withheld, mirror.NotOffered:
		if s.opts.Gate != nil {
			return cmp.Or(g.reviewer.Authorize(ctx, g.caller, discovering), err)
		}
	}
	return err
}

// monitoring is the right to see how the mirror itself is doing. It is the one
// that a Prometheus has on an API server.
var monitoring = access.Attributes{Verb: "get", Path: "/metrics"}

// discovering is the right to see what a cluster serves.
var discovering = access.Attributes{Verb: "get", Path: "/apis"}

// mayMonitor says whether the caller may see how the mirror is doing.
func (s *Server) mayMonitor(r *http.Request) bool { return s.may(r, monitoring) }

func (s *Server) may(r *http.Request, a access.Attributes) bool {
	if s.opts.Gate == nil {
		return true
	}
	g := grantOf(r)
	return g.caller != nil && g.reviewer.Authorize(r.Context(), g.caller, a) == nil
}

// known says whether the caller is known at all.
func (s *Server) known(r *http.Request) bool { return s.opts.Gate == nil || grantOf(r).caller != nil }

// attributesOf says what a query does as the API server would say it of its own
// requests, see RequestInfoFactory in k8s.io/apiserver/pkg/endpoints/request.
func attributesOf(q *read.Query) access.Attributes {
	ask := q.Ask()
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

// callerKey is whom a request counts against. Without authentication that is
// where it comes from, unless that is this machine: it is one user's then.
func callerKey(g *grant, r *http.Request) string {
	if g.caller != nil {
		return g.caller.Key()
	}
	return foreign(r.RemoteAddr)
}
