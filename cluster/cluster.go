package cluster

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Cluster is one cluster: its name, the way to reach it, and what it serves.
// All methods may be called from any number of goroutines.
type Cluster struct {
	name      string
	namespace string
	config    *rest.Config
	client    *http.Client
	base      *url.URL
	discovery *discoverer
}

// New prepares a connection to the cluster that cfg describes; it does no
// network I/O. An empty name becomes the host of cfg.
//
// cfg is copied. Its client-side rate limit is taken off (one watch for many
// readers needs none, and API priority and fairness protects the server), and
// so is its Timeout, which would otherwise cut every watch: contexts bound the
// calls instead. Answers that are no success have the credentials of the request
// taken out, should they repeat them. Without a UserAgent of its own it gets
// "tidings/<version>".
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
	client, err := rest.HTTPClientFor(guarding(cfg))
	if err != nil {
		return nil, fmt.Errorf("cluster %q: prepare the connection to %s: %w", name, base.Redacted(), err)
	}
	d, err := newDiscoverer(name, base, cfg, client)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: prepare discovery: %w", name, err)
	}
	return &Cluster{name: name, namespace: "default", config: cfg, client: client, base: base, discovery: d}, nil
}

// Name is what the cluster is called: its kubeconfig context, or its host.
func (c *Cluster) Name() string { return c.name }

// DefaultNamespace is the namespace that requests mean when they name none: the
// one of the kubeconfig context, of the pod's service account, or "default".
func (c *Cluster) DefaultNamespace() string { return c.namespace }

// Config returns a copy of the configuration in use.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// HTTPClient is the client that speaks to the cluster with its credentials. It
// has no overall timeout, so that watches can stay open.
func (c *Cluster) HTTPClient() *http.Client { return c.client }

// BaseURL returns the server's URL; its path, if any, is the prefix of every
// request. The caller may change the value returned.
func (c *Cluster) BaseURL() *url.URL {
	u := *c.base
	return &u
}

// Resolve finds the resource a person means by arg, as kubectl takes it: plural,
// singular, short name or kind in any case, alone or followed by ".group" or
// ".version.group". Where several match, the core group comes first, then the
// groups in the order the server lists them; within a group its preferred
// version is taken. An unknown arg is a [*NotFoundError].
func (c *Cluster) Resolve(ctx context.Context, arg string) (Resource, error) {
	return c.discovery.find(ctx, arg, func(cat *catalogue) (Resource, bool) { return cat.resolve(arg) })
}

// ResourceFor finds a resource by its group, version and plural name; an empty
// version means the preferred one. An unknown one is a [*NotFoundError].
func (c *Cluster) ResourceFor(ctx context.Context, gvr schema.GroupVersionResource) (Resource, error) {
	return c.discovery.find(ctx, dotted(gvr.Resource, gvr.Version, gvr.Group), func(cat *catalogue) (Resource, bool) {
		return cat.first(func(r Resource) bool {
			return r.Resource == gvr.Resource && r.Group == gvr.Group && (gvr.Version == "" || r.Version == gvr.Version)
		})
	})
}

// ResourceForKind finds the resource that holds objects of a kind; an empty
// version means the preferred one. An unknown kind is a [*NotFoundError].
func (c *Cluster) ResourceForKind(ctx context.Context, gvk schema.GroupVersionKind) (Resource, error) {
	return c.discovery.find(ctx, dotted(gvk.Kind, gvk.Version, gvk.Group), func(cat *catalogue) (Resource, bool) {
		return cat.first(func(r Resource) bool {
			return r.Kind == gvk.Kind && r.Group == gvk.Group && (gvk.Version == "" || r.Version == gvk.Version)
		})
	})
}

// Resources lists every resource that can be listed and watched, each in its
// preferred version: the core group first, then in the server's order. What is
// returned is at most half a minute old.
//
// A list and an error together mean that some of the discovery failed (most
// often an aggregated API that is down; the error then wraps a
// *discovery.ErrGroupDiscoveryFailed) and the list holds what is known.
func (c *Cluster) Resources(ctx context.Context) ([]Resource, error) {
	return c.discovery.mirrorable(ctx)
}

// Invalidate forgets what discovery found. The next question asks the server.
func (c *Cluster) Invalidate() { c.discovery.invalidate() }

// Close closes idle connections. Requests under way are not disturbed, and the
// cluster can still be used; its connections then open again.
func (c *Cluster) Close() { c.client.CloseIdleConnections() }
