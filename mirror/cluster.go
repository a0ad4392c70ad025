package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// refusedPause is how soon a resource that was refused may be tried again.
const refusedPause = 5 * time.Second

// Cluster is one cluster under one configuration, and the informers of it. A
// cluster whose configuration changes is another Cluster from then on, and what was
// asked about the old one is refused with an [*Error] of reason [Ended]. So whoever
// holds a Cluster has asked, was answered, and reads at one and the same.
type Cluster struct {
	mirror  *Mirror
	name    string
	config  *rest.Config // as given, to be compared with
	cluster *cluster.Cluster
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	named   []*naming

	mu        sync.Mutex
	ended     bool
	informers map[scope]*Informer
}

// Name of the cluster in the mirror.
func (c *Cluster) Name() string { return c.name }

// Connection to the cluster's API server, with the mirror's credentials.
func (c *Cluster) Connection() *cluster.Cluster { return c.cluster }

// Context ends when the cluster is removed or replaced; its cause says which.
func (c *Cluster) Context() context.Context { return c.ctx }

// scope is what one informer mirrors: a resource, in all namespaces ("") or in
// one.
type scope struct {
	schema.GroupVersionResource
	namespace string
}

func newCluster(m *Mirror, name string, cfg *rest.Config) (*Cluster, error) {
	c, err := cluster.New(name, cfg)
	if err != nil {
		return nil, err
	}
	out := &Cluster{mirror: m, name: name, config: cfg, cluster: c, informers: map[scope]*Informer{}}
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	for _, name := range m.names {
		out.named = append(out.named, &naming{name: name, tried: make(chan struct{})})
	}
	return out, nil
}

// start begins to mirror what was asked for by name.
func (c *Cluster) start() {
	for _, n := range c.named {
		c.running.Go(func() { n.pursue(c) })
	}
}

// end stops and empties every informer and waits until nothing runs any more.
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

// Ready returns the informer that answers for a resource in a namespace, or in all
// if that is empty, once it has its first list. It is started if need be. Where the
// cluster does not let the mirror have the resource in all namespaces, an informer
// of the one that is asked for has to do.
func (c *Cluster) Ready(ctx context.Context, r cluster.Resource, namespace string) (*Informer, error) {
	k, err := c.ready(ctx, r, "")
	if ReasonOf(err) == Forbidden && namespace != "" {
		return c.ready(ctx, r, namespace)
	}
	return k, err
}

func (c *Cluster) ready(ctx context.Context, r cluster.Resource, namespace string) (*Informer, error) {
	k, err := c.keep(r, namespace)
	if err != nil {
		return nil, err
	}
	return k, k.wait(ctx)
}

// keep returns the informer of a resource, in all namespaces or in one, starting
// it if need be. One that was refused is started anew, but not sooner than
// refusedPause after that.
func (c *Cluster) keep(r cluster.Resource, namespace string) (*Informer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil, context.Cause(c.ctx)
	}
	at := scope{r.GVR(), namespace}
	if k := c.informers[at]; k != nil && !k.over() {
		k.use.touch()
		return k, nil
	}
	// Namespaces are the callers' to invent: do not remember what was refused.
	maps.DeleteFunc(c.informers, func(at scope, k *Informer) bool { return at.namespace != "" && k.over() })
	k, err := newInformer(c, r, namespace)
	if err != nil {
		return nil, err
	}
	k.use.touch()
	c.informers[at] = k
	c.running.Go(k.run)
	return k, nil
}

// forget takes an informer off the map, if it is there. From then on nobody finds
// it.
func (c *Cluster) forget(k *Informer) (found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.forgetLocked(k)
}

// forgetLocked is forget under the lock.
func (c *Cluster) forgetLocked(k *Informer) (found bool) {
	at := scope{k.resource.GVR(), k.namespace}
	if found = c.informers[at] == k; found {
		delete(c.informers, at)
	}
	return found
}

// Resolve finds the resource a person means by arg, in any form kubectl takes. The
// error says what exists instead.
func (c *Cluster) Resolve(ctx context.Context, arg string) (cluster.Resource, error) {
	return c.resolve(ctx, arg, func(ctx context.Context) (cluster.Resource, error) { return c.cluster.Resolve(ctx, arg) })
}

// ResourceFor finds a resource by its group, version and plural.
func (c *Cluster) ResourceFor(ctx context.Context, gvr schema.GroupVersionResource) (cluster.Resource, error) {
	return c.resolve(ctx, dotted(gvr), func(ctx context.Context) (cluster.Resource, error) { return c.cluster.ResourceFor(ctx, gvr) })
}

// ResolveGVR finds a resource by group, version and name, which is the plural
// or anything else kubectl would take; the group of pods is "".
func (c *Cluster) ResolveGVR(ctx context.Context, gvr schema.GroupVersionResource) (cluster.Resource, error) {
	arg := dotted(gvr)
	return c.resolve(ctx, arg, func(ctx context.Context) (cluster.Resource, error) {
		r, exact := c.cluster.ResourceFor(ctx, gvr)
		if exact == nil {
			return r, nil
		}
		if r, err := c.cluster.Resolve(ctx, arg); err == nil && r.GroupVersion() == gvr.GroupVersion() {
			return r, nil
		}
		return r, exact
	})
}

func dotted(gvr schema.GroupVersionResource) string {
	return strings.TrimSuffix(gvr.Resource+"."+gvr.Version+"."+gvr.Group, ".")
}

func (c *Cluster) resolve(ctx context.Context, arg string, find func(context.Context) (cluster.Resource, error)) (cluster.Resource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.mirror.opts.Wait, errWaited)
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
	return r, c.permit(ctx, r)
}

// Resources lists what the cluster serves that can be mirrored and may be shown. A
// list and an error together mean that the list may lack something.
func (c *Cluster) Resources(ctx context.Context) ([]cluster.Resource, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.mirror.opts.Wait, errWaited)
	defer cancel()
	ctx, stop := Either(ctx, c.ctx)
	defer stop()
	all, err := c.cluster.Resources(ctx)
	all = slices.DeleteFunc(all, func(r cluster.Resource) bool { return c.permit(ctx, r) != nil })
	return all, c.Upstream("", err)
}

// permit says whether the mirror may show a resource at all.
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
		return &Error{Reason: Withheld, Message: "secrets are mirrored and shown only if they are asked for by name: start the server with --resource secrets (and --resource '*' for everything else)"}
	}
	return &Error{Reason: NotMirrored, Exists: exists, Message: fmt.Sprintf("%s are not mirrored: the mirror is limited to %s", r, strings.Join(c.mirror.names, ", "))}
}

// known lists what a cluster serves, to be told to one who asked for something
// that it does not: the resources of the group, if there is such a group.
func (c *Cluster) known(ctx context.Context, asked string) []string {
	all, _ := c.cluster.Resources(ctx)
	_, group, _ := strings.Cut(asked, ".")
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
