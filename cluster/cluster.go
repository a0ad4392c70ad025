package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// maxRedirects is how many redirects one request follows.
const maxRedirects = 10

// Cluster is a connection to a cluster and what the cluster serves. All methods
// are safe for concurrent use.
type Cluster struct {
	name      string
	namespace string
	config    *rest.Config
	client    *http.Client
	base      *url.URL
	discovery *discoverer
}

// New creates a connection to the cluster that cfg describes. It does no network
// I/O. If name is empty, the host of cfg is the name.
//
// New uses a copy of cfg. It removes the client-side rate limit: one watch for
// many readers needs none, and API Priority and Fairness protects the server. It
// also removes the Timeout, which would end every watch; contexts bound the calls
// instead. If an error response repeats credentials of the request, they are
// redacted. Redirects to another server are errors, because they would take the
// credentials there. The default UserAgent is "tidings/<version>".
func New(name string, cfg *rest.Config) (*Cluster, error) {
	if cfg == nil {
		return nil, fmt.Errorf("cluster %q: no configuration given", name)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.Burst, cfg.RateLimiter, cfg.Timeout = -1, 0, nil, 0
	if cfg.UserAgent == "" {
		cfg.UserAgent = userAgent()
	}
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: server address %q: %w", name, cfg.Host, err)
	}
	if name == "" {
		name = base.Host
	}
	client, err := rest.HTTPClientFor(protectCredentials(cfg))
	if err != nil {
		return nil, fmt.Errorf("cluster %q: prepare the connection to %s: %w", name, base.Redacted(), err)
	}
	client.CheckRedirect = sameServer
	d, err := newDiscoverer(name, base, cfg, client)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: prepare discovery: %w", name, err)
	}
	return &Cluster{name: name, namespace: "default", config: cfg, client: client, base: base, discovery: d}, nil
}

// sameServer rejects a redirect to another server or scheme. net/http drops the
// Authorization header there, but client-go adds it to every request.
func sameServer(req *http.Request, via []*http.Request) error {
	if from := via[0].URL; req.URL.Host != from.Host || req.URL.Scheme != from.Scheme {
		return fmt.Errorf("the server redirects to %s://%s, which would get the credentials; if that is the right server, connect to it", req.URL.Scheme, req.URL.Host)
	}
	if len(via) >= maxRedirects {
		return fmt.Errorf("the server redirected %d times", maxRedirects)
	}
	return nil
}

// Name returns the name of the cluster: its kubeconfig context, or its host.
func (c *Cluster) Name() string { return c.name }

// DefaultNamespace returns the namespace of requests that name none: that of the
// kubeconfig context or of the pod's service account, or "default".
func (c *Cluster) DefaultNamespace() string { return c.namespace }

// Config returns a copy of the configuration in use.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// HTTPClient returns the client for requests to the cluster. It adds the
// credentials. It has no timeout, so that watches can stay open.
func (c *Cluster) HTTPClient() *http.Client { return c.client }

// BaseURL returns a copy of the server's URL. Its path, if any, is the prefix of
// every request.
func (c *Cluster) BaseURL() *url.URL {
	u := *c.base
	return &u
}

// Resolve finds a resource by an argument as kubectl accepts it: plural, singular,
// short name or kind in any case, alone or followed by ".group" or
// ".version.group". If several resources match, the core group has precedence,
// then the groups in the server's order. Within a group the preferred version is
// used. If none matches, the error is a [*NotFoundError].
func (c *Cluster) Resolve(ctx context.Context, arg string) (Resource, error) {
	return c.discovery.find(ctx, arg, func(cat *catalogue) (Resource, bool) { return cat.resolve(arg) })
}

// ResourceFor finds a resource by its group, version and plural name. An empty
// version means the preferred one. If there is none, the error is a
// [*NotFoundError].
func (c *Cluster) ResourceFor(ctx context.Context, gvr schema.GroupVersionResource) (Resource, error) {
	return c.discovery.find(ctx, dotted(gvr.Resource, gvr.Version, gvr.Group), func(cat *catalogue) (Resource, bool) {
		return cat.first(func(r Resource) bool {
			return r.Resource == gvr.Resource && r.Group == gvr.Group && (gvr.Version == "" || r.Version == gvr.Version)
		})
	})
}

// ResourceForKind finds the resource of a kind. An empty version means the
// preferred one. If there is none, the error is a [*NotFoundError].
func (c *Cluster) ResourceForKind(ctx context.Context, gvk schema.GroupVersionKind) (Resource, error) {
	return c.discovery.find(ctx, dotted(gvk.Kind, gvk.Version, gvk.Group), func(cat *catalogue) (Resource, bool) {
		return cat.first(func(r Resource) bool {
			return r.Kind == gvk.Kind && r.Group == gvk.Group && (gvk.Version == "" || r.Version == gvk.Version)
		})
	})
}

// Resources returns all resources that can be listed and watched, each in its
// preferred version: the core group first, then the others in the server's order.
// The result is at most half a minute old.
//
// If a part of discovery fails, Resources returns the known resources together
// with an error. Most often an aggregated API is down; the error then wraps a
// *discovery.ErrGroupDiscoveryFailed.
func (c *Cluster) Resources(ctx context.Context) ([]Resource, error) {
	return c.discovery.mirrorable(ctx)
}

// Invalidate discards the cached discovery. The next call that needs it fetches it
// again.
func (c *Cluster) Invalidate() { c.discovery.invalidate() }

// Close closes idle connections. Requests in progress continue, and the cluster
// can still be used: it then opens new connections.
func (c *Cluster) Close() { c.client.CloseIdleConnections() }
