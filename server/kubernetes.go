package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tidings-io/tidings/kubeapi"
)

// kubernetesRoots are the first segments of the paths of a Kubernetes API.
var kubernetesRoots = map[string]bool{"api": true, "apis": true, "openapi": true, "version": true}

// ofKubernetes makes a request of what is asked of the Kubernetes API of one
// cluster: with the path that it has there, and the RequestInfo of that.
func ofKubernetes(r *http.Request, rt *route) *http.Request {
	path, err := url.PathUnescape(rt.path)
	if err != nil {
		return r // parsePath has seen that it can be
	}
	inner := new(url.URL)
	*inner = *r.URL
	inner.Path, inner.RawPath = path, rt.path
	out := r.WithContext(kubeapi.WithCluster(r.Context(), rt.cluster))
	out.URL = inner
	info, err := kubeapi.RequestInfo(out)
	if err != nil {
		return out
	}
	rt.watch = info.Verb == "watch"
	return out.WithContext(request.WithRequestInfo(out.Context(), info))
}

// newKubernetes makes what answers the Kubernetes API's reads.
func (s *Server) newKubernetes() *kubeapi.Handler {
	opts := s.opts.Kubernetes
	opts.Logger, opts.Watching = s.log, s.watching
	if s.passthrough != nil {
		opts.Else = http.HandlerFunc(s.serveElse)
	}
	return kubeapi.New(s.mirror, opts)
}

// watching counts a watch of the Kubernetes API.
func (s *Server) watching(*http.Request) (done func(), err error) {
	if n := s.watches.Add(1); n > int64(s.opts.MaxWatches) {
		s.watches.Add(-1)
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d watches are open, which is the limit", s.opts.MaxWatches), 5)
	}
	return func() { s.watches.Add(-1) }, nil
}

// serveKubernetes answers what is asked of the Kubernetes API.
func (s *Server) serveKubernetes(w http.ResponseWriter, r *http.Request) {
	if info, ok := request.RequestInfoFrom(r.Context()); !ok || !info.IsResourceRequest {
		s.discovery.ServeHTTP(w, r)
		return
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errShutdown) })()
	s.kube.ServeHTTP(w, r.WithContext(context.WithValue(ctx, patientKey{}, r.Context())))
}

// patientKey is of the context of a request that a shutdown does not end.
type patientKey struct{}

// lasting are the subresources whose requests last.
var lasting = []string{"attach", "exec", "log", "portforward", "proxy"}

// serveElse hands on what is not for the mirror to answer. What would go on for
// ever ends when the server is to end; a write may finish first.
func (s *Server) serveElse(w http.ResponseWriter, r *http.Request) {
	info, ok := request.RequestInfoFrom(r.Context())
	goesOn := !ok || info.Verb == "watch" || slices.Contains(lasting, info.Subresource) || r.Header.Get("Upgrade") != ""
	if ctx, ok := r.Context().Value(patientKey{}).(context.Context); ok && !goesOn {
		r = r.WithContext(ctx)
	}
	s.passthrough.ServeHTTP(w, r)
}
