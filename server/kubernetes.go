package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/mirror"
)

// kubernetesRoots are the first segments of the paths of a Kubernetes API.
var kubernetesRoots = map[string]bool{"api": true, "apis": true, "openapi": true, "version": true}

// ofKubernetes makes a request of what is asked of the Kubernetes API of one
// cluster, with the path that it has there, and reads what is asked.
func ofKubernetes(r *http.Request, rt *route) *http.Request {
	path, err := url.PathUnescape(rt.path)
	if err != nil {
		return r // parsePath has seen that it can be
	}
	out, inner := *r, *r.URL
	inner.Path, inner.RawPath = path, rt.path
	out.URL = &inner
	if rt.api, err = kubeapi.Parse(&out, rt.cluster); err != nil {
		return &out // the guard refuses it
	}
	rt.watch = rt.api.Streams()
	return &out
}

// newKubernetes makes what answers the Kubernetes API's reads. How many watches
// there may be is decided before it is asked.
func (s *Server) newKubernetes() *kubeapi.Handler {
	opts := s.opts.Kubernetes
	opts.Logger, opts.Admit = s.log, s.mayAnswer
	if s.memory.limit > 0 {
		kept := int64(min(64<<20, s.memory.limit/16))
		opts.CacheBytes, opts.AnswerBytes = cmp.Or(opts.CacheBytes, kept), cmp.Or(opts.AnswerBytes, kept)
	}
	if s.passthrough != nil {
		opts.Else = http.HandlerFunc(s.serveElse)
	}
	return kubeapi.New(s.reader, opts)
}

// serveKubernetes answers what callers ask about themselves, and leaves the
// rest to those who know the API.
func (s *Server) serveKubernetes(w http.ResponseWriter, r *http.Request) {
	asked := routeOf(r).api
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errShutdown) })()
	ending := r.WithContext(context.WithValue(ctx, patientKey{}, r.Context()))
	if grantOf(r).handed {
		s.serveElse(w, ending)
		return
	}
	// Who is handed on with credentials of their own is asked about with those.
	own := s.opts.Gate == nil && s.passthrough != nil && r.Header.Get("Authorization") != ""
	switch {
	case access.IsSelfReview(asked.Info) && !own:
		if err := s.serveSelfReview(w, r, asked.Info); err != nil && !unheard(r) {
			s.refuse(w, r, inTime(r, err))
		}
	case !asked.Info.IsResourceRequest:
		s.discovery.ServeHTTP(w, r)
	default:
		s.kube.Serve(w, ending, asked)
	}
}

// patientKey is of the context of a request that a shutdown does not end.
type patientKey struct{}

// serveElse hands on what is not for the mirror to answer. What would go on for
// ever ends when the server is to end; a write may finish first.
func (s *Server) serveElse(w http.ResponseWriter, r *http.Request) {
	goesOn := routeOf(r).watch || r.Header.Get("Upgrade") != ""
	if ctx, ok := r.Context().Value(patientKey{}).(context.Context); ok && !goesOn {
		r = r.WithContext(ctx)
	}
	s.passthrough.ServeHTTP(w, r)
}

func (s *Server) serveSelfReview(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if g := grantOf(r); g.reviewer != nil {
		return g.reviewer.ServeSelfReview(w, r, info, g.caller)
	}
	return access.ServeOwnReview(w, r, info, routeOf(r).cluster.Connection())
}

// credentials are what a request says of who makes it. It refuses what a web page of
// another origin has a browser ask with rights that the page does not have: those of
// this machine's user, or of a client certificate. Browsers let such a page read no
// answer, except those over a WebSocket. A token that the page sends is its own, and
// only that counts: the certificate beside it is left out. Where no token is checked,
// none helps.
func (s *Server) credentials(r *http.Request) (access.Credentials, error) {
	c := access.CredentialsOf(r)
	origin := r.Header.Get("Origin")
	if origin == "" || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return c, nil
	}
	from, err := url.Parse(origin)
	if err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host) {
		return c, nil
	}
	if explicit, ok := c.Explicit(); ok && s.opts.Gate != nil {
		return explicit, nil
	}
	return c, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("a page of another origin may open a WebSocket only with a bearer token that is checked: start the server with --authentication upstream"))
}

// refuse answers with an error, in the way of the API that was asked.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if routeOf(r).kind != kubernetes {
		failWith(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	kubeapi.WriteStatus(w, r, statusOf(err))
}

// statusOf is what the Kubernetes API says instead of an error.
func statusOf(err error) *metav1.Status {
	var out metav1.Status
	var known apierrors.APIStatus
	if errors.As(err, &known) && mirror.ReasonOf(err) == "" {
		out = known.Status()
	} else {
		code, p, retry := explain(err)
		out = apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", p.Error, int(retry.Seconds()), true).ErrStatus
		out.Message = p.Error
	}
	out.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &out
}
