package mirror

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// refusedPause is how soon a resource that was refused may be tried again.
const refusedPause = 5 * time.Second

// member is one cluster under one configuration, and the informers of it.
type member struct {
	mirror  *Mirror
	name    string
	config  *rest.Config // as given, to be compared with
	cluster *cluster.Cluster
	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup
	named   []*naming
	live    atomic.Int32 // reads under way that go past the mirror, see tryLive
	looks   looks

	mu      sync.Mutex
	ended   bool
	keepers map[scope]*keeper
}

// scope is what one informer mirrors: a resource, in all namespaces ("") or in
// one.
type scope struct {
	schema.GroupVersionResource
	namespace string
}

func newMember(m *Mirror, name string, cfg *rest.Config) (*member, error) {
	c, err := cluster.New(name, cfg)
	if err != nil {
		return nil, err
	}
	out := &member{mirror: m, name: name, config: cfg, cluster: c, keepers: map[scope]*keeper{}}
	out.ctx, out.cancel = context.WithCancelCause(context.Background())
	for _, name := range m.names {
		out.named = append(out.named, &naming{name: name, tried: make(chan struct{})})
	}
	return out, nil
}

// start begins to mirror what was asked for by name.
func (m *member) start() {
	for _, n := range m.named {
		m.running.Go(func() { n.pursue(m) })
	}
}

// end stops and empties every informer and waits until nothing runs any more.
func (m *member) end(why *Error) {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.cancel(why)
	m.running.Wait()
	m.mu.Lock()
	clear(m.keepers)
	m.mu.Unlock()
	m.cluster.Close()
}

// keep returns the informer of a resource, in all namespaces or in one, starting
// it if need be. One that was refused is started anew, but not sooner than
// refusedPause after that.
func (m *member) keep(r cluster.Resource, namespace string) (*keeper, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return nil, context.Cause(m.ctx)
	}
	at := scope{r.GVR(), namespace}
	if k := m.keepers[at]; k != nil && !k.over() {
		k.use.touch()
		return k, nil
	}
	// Namespaces are the callers' to invent: do not remember what was refused.
	maps.DeleteFunc(m.keepers, func(at scope, k *keeper) bool { return at.namespace != "" && k.over() })
	k, err := newKeeper(m, r, namespace)
	if err != nil {
		return nil, err
	}
	k.use.touch()
	m.keepers[at] = k
	m.running.Go(k.run)
	return k, nil
}

// held returns the informer that answers a query, if it runs.
func (m *member) held(q Query) *keeper {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, namespace := range []string{"", q.Namespace} {
		if k := m.keepers[scope{q.Resource.GVR(), namespace}]; k != nil && k.ctx.Err() == nil {
			return k
		}
	}
	return nil
}

// retire forgets a keeper that has ended for good.
func (m *member) retire(k *keeper) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(k)
}

// forget takes a keeper off the map, if it is there. From then on nobody finds
// it. m.mu is held.
func (m *member) forget(k *keeper) (found bool) {
	at := scope{k.resource.GVR(), k.namespace}
	if found = m.keepers[at] == k; found {
		delete(m.keepers, at)
	}
	return found
}

// naming is a resource asked for by name.
type naming struct {
	name  string
	tried chan struct{} // closed once the name has been looked up

	mu    sync.Mutex
	found *cluster.Resource
	err   error
}

func (n *naming) state() (*cluster.Resource, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.found, n.err
}

func (n *naming) note(r *cluster.Resource, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found, n.err = r, err
	select {
	case <-n.tried:
	default:
		close(n.tried)
	}
}

// pursue mirrors the resource as long as the member lasts, through everything:
// a cluster that cannot be reached, a definition that is not there yet or goes,
// a right that is yet to be granted.
func (n *naming) pursue(m *member) {
	pause := time.Second
	for m.ctx.Err() == nil {
		r, err := m.cluster.Resolve(m.ctx, n.name)
		if m.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.note(nil, upstream("look up the resource "+n.name, err))
		} else {
			n.note(&r, nil)
			var k *keeper
			if k, err = m.keep(r, ""); err == nil {
				k.use.named.Store(true)
				select {
				case <-k.done:
					err = k.err
				case <-m.ctx.Done():
					return
				}
				if k.status().Synced {
					pause = time.Second
				}
			}
			n.note(&r, err)
		}
		m.mirror.log.Warn("cannot mirror a resource that was asked for", "cluster", m.name, "resource", n.name, "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-m.ctx.Done():
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// Target is a resource of a cluster that has been found and may be read.
type Target struct {
	Resource cluster.Resource
	member   *member
}

// Cluster is the name of the target's cluster.
func (t Target) Cluster() string { return t.member.name }

func (t Target) String() string { return fmt.Sprintf("%s of cluster %s", t.Resource, t.member.name) }

// Resolve finds the resource a person means by arg, in any form kubectl takes,
// in a cluster; "" means the default one. The error says what exists instead.
func (m *Mirror) Resolve(ctx context.Context, clusterName, arg string) (Target, error) {
	return m.resolve(ctx, clusterName, arg, func(ctx context.Context, c *cluster.Cluster) (cluster.Resource, error) {
		return c.Resolve(ctx, arg)
	})
}

// ResolveGVR finds a resource by group, version and name, which is the plural
// or anything else kubectl would take; the group of pods is "".
func (m *Mirror) ResolveGVR(ctx context.Context, clusterName string, gvr schema.GroupVersionResource) (Target, error) {
	arg := strings.TrimSuffix(gvr.Resource+"."+gvr.Version+"."+gvr.Group, ".")
	return m.resolve(ctx, clusterName, arg, func(ctx context.Context, c *cluster.Cluster) (cluster.Resource, error) {
		r, exact := c.ResourceFor(ctx, gvr)
		if exact == nil {
			return r, nil
		}
		if r, err := c.Resolve(ctx, arg); err == nil && r.GroupVersion() == gvr.GroupVersion() {
			return r, nil
		}
		return r, exact
	})
}

func (m *Mirror) resolve(ctx context.Context, clusterName, arg string, find func(context.Context, *cluster.Cluster) (cluster.Resource, error)) (Target, error) {
	member, err := m.member(clusterName)
	if err != nil {
		return Target{}, err
	}
	if err := expected(ctx, member); err != nil {
		return Target{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.opts.Wait, errWaited)
	defer cancel()
	ctx, stop := either(ctx, member.ctx)
	defer stop()
	r, err := find(ctx, member.cluster)
	if err != nil {
		err = upstream("look up "+arg, err)
		if e := (*Error)(nil); ReasonOf(err) == UnknownResource && asError(err, &e) && len(e.Exists) == 0 {
			e.Exists = member.known(ctx, arg)
		}
		return Target{}, err
	}
	if err := member.permit(ctx, r); err != nil {
		return Target{}, err
	}
	return Target{Resource: r, member: member}, nil
}

// permit says whether the mirror may show a resource at all.
func (m *member) permit(ctx context.Context, r cluster.Resource) error {
	secret := r.Group == "" && r.Resource == "secrets"
	if m.mirror.everything && !secret {
		return nil
	}
	var exists []string
	for _, n := range m.named {
		select {
		case <-n.tried:
		case <-ctx.Done():
			return upstream("look up the resource "+n.name, context.Cause(ctx))
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
	return &Error{Reason: NotMirrored, Exists: exists, Message: fmt.Sprintf("%s are not mirrored: the mirror is limited to %s", r, strings.Join(m.mirror.names, ", "))}
}

// known lists what a cluster serves, to be told to one who asked for something
// that it does not: the resources of the group, if there is such a group.
func (m *member) known(ctx context.Context, asked string) []string {
	all, _ := m.cluster.Resources(ctx)
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
