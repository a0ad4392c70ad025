package server

import (
	"context"
	"net/http"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/kubeapi/discovery"
	"github.com/tidings-io/tidings/kubeapi/passthrough"
)

// clusterOf is the cluster that a request is about.
func clusterOf(ctx context.Context) (*cluster.Cluster, error) {
	rt := ctx.Value(routeKey{}).(route)
	if rt.nowhere != nil {
		return nil, rt.nowhere
	}
	return rt.cluster.Connection(), nil
}

// newDiscovery makes what answers what the Kubernetes API says of itself. Nothing
// is left out of it if the rest is handed on.
func (s *Server) newDiscovery() *discovery.Handler {
	return discovery.New(discovery.Options{Cluster: clusterOf, Everything: s.opts.Passthrough, Logger: s.log})
}

// newPassthrough makes what hands on requests that are not for the mirror. It
// comes after newDiscovery.
func (s *Server) newPassthrough() *passthrough.Handler {
	if !s.opts.Passthrough {
		return nil
	}
	return passthrough.New(passthrough.Options{Cluster: clusterOf, Logger: s.log, Credit: s.credit, Wrote: func(c *cluster.Cluster) {
		c.Invalidate()
		s.discovery.Invalidate()
	}})
}

// handsOn says whether a request can only be the cluster's to answer: it is no
// read of whole objects, and no review of the caller. What it says is never
// served from here, so nobody needs to be asked about it first: a right that has
// just been given counts at once, and an answer is not asked for twice.
func (s *Server) handsOn(asked *kubeapi.Request) bool {
	if s.passthrough == nil || !asked.Info.IsResourceRequest || access.IsSelfReview(asked.Info) {
		return false
	}
	return !asked.Reads()
}

// credit gives a request that is handed on the credentials of who made it. Those
// of an authenticated caller the guard has taken off the request.
func (s *Server) credit(from *http.Request, to http.Header) bool {
	if c, ok := access.CallerFrom(from.Context()); ok {
		return c.Credit(to)
	}
	return passthrough.OwnCredentials(from, to)
}
