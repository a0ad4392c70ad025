package server

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/kubeapi/discovery"
	"github.com/tidings-io/tidings/kubeapi/passthrough"
	"github.com/tidings-io/tidings/mirror"
)

// clusterOf is the cluster that a request of the Kubernetes API is about.
func (s *Server) clusterOf(ctx context.Context) (*cluster.Cluster, error) {
	c, err := s.mirror.Cluster(kubeapi.ClusterFrom(ctx))
	switch mirror.ReasonOf(err) {
	case mirror.UnknownCluster:
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: err.Error()}}
	case mirror.ClusterNeeded:
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c, err
}

// newDiscovery makes what answers what the Kubernetes API says of itself. Nothing
// is left out of it if the rest is handed on.
func (s *Server) newDiscovery() *discovery.Handler {
	return discovery.New(discovery.Options{Cluster: s.clusterOf, Everything: s.opts.Passthrough, Logger: s.log})
}

// newPassthrough makes what hands on requests that are not for the mirror. It
// comes after newDiscovery.
func (s *Server) newPassthrough() *passthrough.Handler {
	if !s.opts.Passthrough {
		return nil
	}
	return passthrough.New(passthrough.Options{Cluster: s.clusterOf, Logger: s.log, Credit: s.credit, Wrote: func(c *cluster.Cluster) {
		c.Invalidate()
		s.discovery.Invalidate()
	}})
}

// handsOn says whether a request can only be the cluster's to answer: it is no
// read of whole objects, and no review of the caller. What it says is never
// served from here, so nobody needs to be asked about it first: a right that has
// just been given counts at once, and an answer is not asked for twice.
func (s *Server) handsOn(r *http.Request, info *request.RequestInfo) bool {
	if s.passthrough == nil || !info.IsResourceRequest || access.IsSelfReview(info) {
		return false
	}
	read := r.Method == http.MethodGet && slices.Contains([]string{"get", "list", "watch"}, info.Verb)
	return !read || info.Subresource != ""
}

// credit gives a request that is handed on the credentials of who made it. Those
// of an authenticated caller the guard has taken off the request.
func (s *Server) credit(from *http.Request, to http.Header) bool {
	if c, ok := access.CallerFrom(from.Context()); ok {
		return c.Credit(to)
	}
	return passthrough.OwnCredentials(from, to)
}
