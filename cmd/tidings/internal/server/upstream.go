package server

import (
	"context"
	"net/http"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/discovery"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/passthrough"
)

// clusterOf returns the connection to the cluster of a request.
func clusterOf(ctx context.Context) (*cluster.Cluster, error) {
	rt := ctx.Value(routeKey{}).(route)
	if rt.clusterErr != nil {
		return nil, rt.clusterErr
	}
	return rt.cluster.Connection(), nil
}

// newDiscovery makes the handler of discovery requests. With passthrough it leaves
// nothing out.
func (s *Server) newDiscovery() *discovery.Handler {
	return discovery.New(discovery.Options{Cluster: clusterOf, Everything: s.opts.Passthrough, Logger: s.log})
}

// newPassthrough makes the handler that forwards requests to the cluster. It needs
// s.discovery.
func (s *Server) newPassthrough() *passthrough.Handler {
	if !s.opts.Passthrough {
		return nil
	}
	return passthrough.New(passthrough.Options{Cluster: clusterOf, Logger: s.log, SetCredentials: s.setCredentials, Wrote: func(c *cluster.Cluster) {
		c.Invalidate()
		s.discovery.Invalidate()
	}})
}

// mustForward reports whether only the cluster can answer a request: it neither reads
// whole objects nor reviews the caller. The cluster authorizes such a request itself,
// so it is forwarded without a review: a new right counts at once, and the cluster is
// asked once.
func (s *Server) mustForward(req *kubeapi.Request) bool {
	if s.passthrough == nil || !req.Info.IsResourceRequest || access.IsSelfReview(req.Info) {
		return false
	}
	return !req.Reads()
}

// setCredentials gives a forwarded request the credentials of its caller. Those of an
// authenticated caller have been removed from the request by the guard.
func (s *Server) setCredentials(from *http.Request, to http.Header) bool {
	if c, ok := access.CallerFrom(from.Context()); ok {
		return c.SetCredentials(to)
	}
	return passthrough.OwnCredentials(from, to)
}
