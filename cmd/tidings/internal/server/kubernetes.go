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

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// kubernetesRoots are the first path segments of the Kubernetes API.
var kubernetesRoots = map[string]bool{"api": true, "apis": true, "openapi": true, "version": true}

// kubernetesRequest returns the request with the path that it has at the cluster's API
// server, and parses it.
func kubernetesRequest(r *http.Request, rt *route) *http.Request {
	path, err := url.PathUnescape(rt.path)
	if err != nil {
		return r // cannot happen: parsePath has unescaped it
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

// newKubernetes makes the handler of Kubernetes API reads. Limits on watches apply
// before it is called.
func (s *Server) newKubernetes() *kubeapi.Handler {
	opts := s.opts.Kubernetes
	opts.Logger, opts.Admit = s.log, s.admitAnswer
	if s.memory.limit > 0 {
		cacheBytes := int64(min(64<<20, s.memory.limit/16))
		opts.CacheBytes, opts.AnswerBytes = cmp.Or(opts.CacheBytes, cacheBytes), cmp.Or(opts.AnswerBytes, cacheBytes)
	}
	if s.passthrough != nil {
		opts.Else = http.HandlerFunc(s.servePassthrough)
	}
	return kubeapi.New(s.reader, opts)
}

// serveKubernetes answers reviews of the caller itself, and passes other requests to
// the handler of their kind.
func (s *Server) serveKubernetes(w http.ResponseWriter, r *http.Request) {
	req := routeOf(r).api
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errShutdown) })()
	drainable := r.WithContext(context.WithValue(ctx, requestContextKey{}, r.Context()))
	if grantOf(r).forwarded {
		s.servePassthrough(w, drainable)
		return
	}
	// A review with the caller's own credentials is forwarded with them.
	ownCredentials := s.opts.Gate == nil && s.passthrough != nil && r.Header.Get("Authorization") != ""
	switch {
	case access.IsSelfReview(req.Info) && !ownCredentials:
		if err := s.serveSelfReview(w, r, req.Info); err != nil && !clientGone(r) {
			s.refuse(w, r, timeoutError(r, err))
		}
	case !req.Info.IsResourceRequest && r.URL.Query().Has("at"):
		s.servePastDiscovery(w, r)
	case !req.Info.IsResourceRequest:
		s.discovery.ServeHTTP(w, r)
	default:
		s.kube.Serve(w, drainable, req)
	}
}

// requestContextKey is the key of the request's own context, which a shutdown does not
// end.
type requestContextKey struct{}

// servePassthrough forwards a request to the cluster. A shutdown ends a watch or an
// upgraded connection; other requests may finish.
func (s *Server) servePassthrough(w http.ResponseWriter, r *http.Request) {
	longRunning := routeOf(r).watch || r.Header.Get("Upgrade") != ""
	if ctx, ok := r.Context().Value(requestContextKey{}).(context.Context); ok && !longRunning {
		r = r.WithContext(ctx)
	}
	s.passthrough.ServeHTTP(w, r)
}

func (s *Server) serveSelfReview(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) error {
	if g := grantOf(r); g.reviewer != nil {
		return g.reviewer.ServeSelfReview(w, r, info, g.caller)
	}
	return access.ServeMirrorSelfReview(w, r, info, routeOf(r).cluster.Connection())
}

// credentials returns the credentials of a request. A web page of another origin can
// have a browser open a WebSocket with credentials that are not the page's: the rights
// of this machine's user, or a client certificate. (Browsers do not let such a page
// read other responses.) So for WebSockets from another origin only a token counts,
// which the page itself must have sent, and the certificate is dropped. Without
// authentication no token is checked, and such a WebSocket is forbidden.
func (s *Server) credentials(r *http.Request) (access.Credentials, error) {
	c := access.CredentialsOf(r)
	origin := r.Header.Get("Origin")
	if origin == "" || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return c, nil
	}
	originURL, err := url.Parse(origin)
	if err == nil && originURL.Host != "" && strings.EqualFold(originURL.Host, r.Host) {
		return c, nil
	}
	if tokenOnly, ok := c.TokenOnly(); ok && s.opts.Gate != nil {
		return tokenOnly, nil
	}
	return c, apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("a page of another origin may open a WebSocket only with a bearer token that is checked: start the server with --authentication upstream"))
}

// refuse answers with an error, in the format of the API that was called.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if routeOf(r).kind != kubernetes {
		failWith(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	kubeapi.WriteStatus(w, r, statusOf(err))
}

// statusOf converts an error to the Status of the Kubernetes API.
func statusOf(err error) *metav1.Status {
	var out metav1.Status
	var apiStatus apierrors.APIStatus
	if errors.As(err, &apiStatus) && mirror.ReasonOf(err) == "" {
		out = apiStatus.Status()
	} else {
		code, p, retry := problemOf(err)
		out = apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", p.Error, int(retry.Seconds()), true).ErrStatus
		out.Message = p.Error
	}
	out.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &out
}
