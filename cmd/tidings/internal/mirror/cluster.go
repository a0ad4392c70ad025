package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// refusedPause is the time before a resource that the cluster has refused is tried
// again.
const refusedPause = 5 * time.Second

// Cluster is one cluster under one configuration, with its informers. When the
// configuration changes, another Cluster takes its place, and calls on the old one
// fail with an [*Error] of reason [Ended]. A request that keeps its Cluster therefore
// resolves, authorizes and reads against the same cluster.
type Cluster struct {
	mirror  *Mirror
	name    string
	config  *rest.Config // as given to Set, which compares the pointers
	cluster *cluster.Cluster
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	named   []*namedResource

	connection *connection
	log        *slog.Logger // of the cluster itself
	calm       *slog.Logger // of its resources, see calmHandler

	mu        sync.Mutex
	ended     bool
	informers map[scope]*Informer
	listed    []cluster.Resource // by the last Resources, nil: ask again
	listedAt  time.Time
}

// resourcesMaxAge is the maximum age of the result of Cluster.Resources. Readers ask for
// it to complete what they type, which must not be a request to the API server each time.
const resourcesMaxAge = 10 * time.Minute

// Name is the name of the cluster in the mirror.
func (c *Cluster) Name() string { return c.name }

// Connection is the connection to the cluster's API server, with the mirror's
// credentials.
func (c *Cluster) Connection() *cluster.Cluster { return c.cluster }

// Origin is implemented by the Transport of the configuration of a cluster that is not
// mirrored from its API server.
type Origin interface {
	// Fresh returns a resourceVersion that a resource of the cluster has reached now, in
	// all namespaces or in one. An informer of it reaches that, too.
	Fresh(ctx context.Context, r schema.GroupVersionResource, namespace string) (resourceVersion uint64, err error)
	// Problem says why what comes from the origin may not be what the cluster has. nil: nothing
	// is known to be wrong. It waits until that was found out for the first time, or ctx ends.
	Problem(ctx context.Context) error
}

// Origin is what the cluster is mirrored from, nil for its API server.
func (c *Cluster) Origin() Origin {
	from, _ := c.config.Transport.(Origin)
	return from
}

// Context ends when the cluster is removed or replaced; its cause says which.
func (c *Cluster) Context() context.Context { return c.ctx }

// scope is what one informer mirrors: a resource in one namespace, or in all of them
// ("").
type scope struct {
	schema.GroupVersionResource
	namespace string
}

func newCluster(m *Mirror, name string, cfg *rest.Config) (*Cluster, error) {
	c, err := cluster.New(name, cfg)
	if err != nil {
		return nil, err
	}
	out := &Cluster{mirror: m, name: name, config: cfg, cluster: c, informers: map[scope]*Informer{}, connection: newConnection()}
	out.log = m.log.With("cluster", name)
	out.calm = slog.New(calmHandler{m.log.Handler(), out.connection})
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	for _, name := range m.names {
		out.named = append(out.named, &namedResource{name: name, tried: make(chan struct{})})
	}
	return out, nil
}

// start connects, and begins to mirror the resources of Options.Resources.
func (c *Cluster) start() {
	c.running.Go(c.followConnection)
	for _, n := range c.named {
		c.running.Go(func() { n.run(c) })
	}
}

// end stops and empties every informer, and waits until all of its goroutines have
// returned.
func (c *Cluster) end(why *Error) {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.cancel(why)
	c.running.Wait()
	c.mu.Lock()
	clear(c.informers)
	c.mu.Unlock()
	c.cluster.Close()
}

// Ready returns the informer for a resource in a namespace, or in all namespaces if
// that is empty, once it has its first list. Ready starts the informer if necessary.
// If the cluster does not let the mirror read the resource in all namespaces, the
// informer is limited to the given one.
func (c *Cluster) Ready(ctx context.Context, r cluster.Resource, namespace string) (*Informer, error) {
	k, err := c.ready(ctx, r, "")
	if ReasonOf(err) == Forbidden && namespace != "" && len(validation.IsDNS1123Label(namespace)) == 0 {
		return c.ready(ctx, r, namespace)
	}
	return k, err
}

func (c *Cluster) ready(ctx context.Context, r cluster.Resource, namespace string) (*Informer, error) {
	k, err := c.ensure(r, namespace)
	if err != nil {
		return nil, err
	}
	return k, k.wait(ctx)
}

// ensure returns the informer of a resource, in all namespaces or in one, and starts
// it if necessary. An informer that was refused is replaced after refusedPause.
func (c *Cluster) ensure(r cluster.Resource, namespace string) (*Informer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, context.Cause(c.ctx)
	}
	at := scope{r.GVR(), namespace}
	if k := c.informers[at]; k != nil && !k.replaceable() {
		k.use.touch()
		return k, nil
	}
	// Callers can invent namespaces: do not remember the refused ones.
	maps.DeleteFunc(c.informers, func(at scope, k *Informer) bool { return at.namespace != "" && k.replaceable() })
	k, err := newInformer(c, r, namespace)
	if err != nil {
		return nil, err
	}
	k.use.touch()
	c.informers[at] = k
	c.running.Go(k.run)
	return k, nil
}

// Mirrors reports whether there is an informer of a resource in all namespaces or in
// the given one. Every resource that has one exists in the cluster.
func (c *Cluster) Mirrors(gvr schema.GroupVersionResource, namespace string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.informers[scope{gvr, ""}] != nil || c.informers[scope{gvr, namespace}] != nil
}

// forget removes an informer from the map if it has been idle for at least limit, and
// reports whether it did.
func (c *Cluster) forget(k *Informer, limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := scope{k.resource.GVR(), k.namespace}
	if k.use.idle() < limit || c.informers[at] != k {
		return false
	}
	delete(c.informers, at)
	return true
}

// Resolve finds the resource that arg names in any form kubectl accepts. The error
// lists similar resources.
func (c *Cluster) Resolve(ctx context.Context, arg string) (cluster.Resource, error) {
	return c.resolve(ctx, arg, func(ctx context.Context) (cluster.Resource, error) { return c.cluster.Resolve(ctx, arg) })
}

// ResourceFor finds a resource by its group, version and plural.
func (c *Cluster) ResourceFor(ctx context.Context, gvr schema.GroupVersionResource) (cluster.Resource, error) {
	return c.resolve(ctx, dotted(gvr), func(ctx context.Context) (cluster.Resource, error) { return c.cluster.ResourceFor(ctx, gvr) })
}

// ResolveGVR finds a resource by group, version and name. The name is the plural or
// any other name kubectl accepts; the group of pods is "".
func (c *Cluster) ResolveGVR(ctx context.Context, gvr schema.GroupVersionResource) (cluster.Resource, error) {
	arg := dotted(gvr)
	return c.resolve(ctx, arg, func(ctx context.Context) (cluster.Resource, error) {
		// The exact name is the last: if it is not known, discovery is repeated.
		if r, err := c.cluster.Resolve(ctx, arg); err == nil && r.GroupVersion() == gvr.GroupVersion() {
			return r, nil
		}
		return c.cluster.ResourceFor(ctx, gvr)
	})
}

func dotted(gvr schema.GroupVersionResource) string {
	return strings.TrimSuffix(gvr.Resource+"."+gvr.Version+"."+gvr.Group, ".")
}

func (c *Cluster) resolve(ctx context.Context, arg string, find func(context.Context) (cluster.Resource, error)) (cluster.Resource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.mirror.opts.Wait, errTimeout)
	defer cancel()
	ctx, stop := Either(ctx, c.ctx)
	defer stop()
	r, err := find(ctx)
	if err != nil {
		err = c.Upstream("look up "+arg, err)
		if e := (*Error)(nil); ReasonOf(err) == UnknownResource && errors.As(err, &e) && len(e.Exists) == 0 {
			e.Exists = c.known(ctx, arg)
		}
		return cluster.Resource{}, err
	}
	c.mu.Lock()
	if r.Can("list") && r.Can("watch") && !slices.ContainsFunc(c.listed, func(l cluster.Resource) bool { return l.GroupResource() == r.GroupResource() }) {
		c.listed = nil // it is new
	}
	c.mu.Unlock()
	return r, c.permit(ctx, r)
}

// Resources lists the resources of the cluster that can be mirrored and may be shown. The
// list may be ten minutes old, but has every resource that somebody has named. If Resources returns a list and an error, the list may be incomplete.
func (c *Cluster) Resources(ctx context.Context) ([]cluster.Resource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.mirror.opts.Wait, errTimeout)
	defer cancel()
	ctx, stop := Either(ctx, c.ctx)
	defer stop()
	c.mu.Lock()
	all := slices.Clone(c.listed)
	old := time.Since(c.listedAt) > resourcesMaxAge
	c.mu.Unlock()
	var err error
	if all == nil || old {
		begun := time.Now()
		if all, err = c.cluster.Resources(ctx); err == nil {
			c.mu.Lock()
			c.listed, c.listedAt = slices.Clone(all), begun
			c.mu.Unlock()
		}
	}
	all = slices.DeleteFunc(all, func(r cluster.Resource) bool { return c.permit(ctx, r) != nil })
	return all, c.Upstream("", err)
}

// permit returns an error if the mirror may not show the resource.
func (c *Cluster) permit(ctx context.Context, r cluster.Resource) error {
	secret := r.Group == "" && r.Resource == "secrets"
	if c.mirror.everything && !secret {
		return nil
	}
	var exists []string
	for _, n := range c.named {
		select {
		case <-n.tried:
		case <-ctx.Done():
			return c.Upstream("look up the resource "+n.name, context.Cause(ctx))
		}
		if found, _ := n.state(); found != nil {
			if found.GroupResource() == r.GroupResource() {
				return nil
			}
			exists = append(exists, found.String())
		}
	}
	if secret {
		return &Error{Reason: Withheld, Message: "secrets are mirrored and shown only if they are requested by name: start the server with --resource secrets (and --resource '*' for everything else)"}
	}
	return &Error{Reason: NotMirrored, Exists: exists, Message: fmt.Sprintf("%s are not mirrored: the mirror is limited to %s", r, strings.Join(c.mirror.names, ", "))}
}

// known lists the resources that an error about an unknown resource suggests: those
// of the group that was named, if it exists, else all.
func (c *Cluster) known(ctx context.Context, arg string) []string {
	all, _ := c.cluster.Resources(ctx)
	_, group, _ := strings.Cut(arg, ".")
	var some, every []string
	for _, r := range all {
		every = append(every, r.String())
		if group != "" && r.Group != "" && strings.HasSuffix(group, r.Group) {
			some = append(some, r.Versioned())
		}
	}
	if len(some) > 0 {
		return some
	}
	return slices.Compact(every)
}

// Mirrored lists the resources that have their first list, in all namespaces or in the
// given one, in no order.
func (c *Cluster) Mirrored(namespace string) []cluster.Resource {
	c.mu.Lock()
	informers := maps.Clone(c.informers)
	c.mu.Unlock()
	var out []cluster.Resource
	for at, k := range informers {
		if (at.namespace == "" || at.namespace == namespace) && k.ready() {
			out = append(out, k.resource)
		}
	}
	return out
}

// Mirroring returns the informer that mirrors a resource in a namespace, or in all of them
// if that is empty, if there is one. It starts none.
func (c *Cluster) Mirroring(r cluster.Resource, namespace string) (*Informer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.informers[scope{r.GVR(), ""}]
	if one, limited := c.informers[scope{r.GVR(), namespace}]; limited && (!ok || k.replaceable()) {
		k, ok = one, true
	}
	return k, ok
}

// ResourceForKind finds the resource of a kind.
func (c *Cluster) ResourceForKind(ctx context.Context, gvk schema.GroupVersionKind) (cluster.Resource, error) {
	return c.resolve(ctx, gvk.String(), func(ctx context.Context) (cluster.Resource, error) { return c.cluster.ResourceForKind(ctx, gvk) })
}
