package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cluster"
)

// namedResource is a resource of Options.Resources in one cluster.
type namedResource struct {
	name  string
	tried chan struct{} // closed once the name has been looked up

	mu    sync.Mutex
	found *cluster.Resource
	err   error
}

func (n *namedResource) state() (*cluster.Resource, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.found, n.err
}

func (n *namedResource) set(r *cluster.Resource, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found, n.err = r, err
	select {
	case <-n.tried:
	default:
		close(n.tried)
	}
}

// run mirrors the resource until the cluster ends. It keeps trying while the cluster
// cannot be reached, the definition does not exist or is deleted, or the right is not
// yet granted.
func (n *namedResource) run(c *Cluster) {
	pause := time.Second
	for c.ctx.Err() == nil {
		r, err := c.cluster.Resolve(c.ctx, n.name)
		if c.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.set(nil, c.Upstream("look up the resource "+n.name, err))
		} else {
			n.set(&r, nil)
			var k *Informer
			if k, err = c.ensure(r, ""); err == nil {
				k.use.named.Store(true)
				select {
				case <-k.done:
					err = k.err
				case <-c.ctx.Done():
					return
				}
				if k.status().Synced {
					pause = time.Second
				}
			}
			n.set(&r, err)
		}
		c.calm.Warn("cannot mirror a requested resource", "cluster", c.name, "resource", n.name, "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-c.connection.restored():
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}

// CheckResources waits until the names of [Options.Resources] have been looked up. The
// error is about the names that no cluster serves. A name that was not found is not an
// error as long as a cluster cannot be asked for it: unasked has those clusters by name.
// If ctx ends, clusters that have not answered count as such.
func (m *Mirror) CheckResources(ctx context.Context) (unasked map[string][]string, err error) {
	clusters := m.current()
	unasked = map[string][]string{}
	var errs []error
	for i, name := range m.names {
		served := false
		var unknown []*Error
		for _, c := range slices.SortedFunc(maps.Values(clusters), func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) }) {
			n := c.named[i]
			select {
			case <-n.tried:
			case <-ctx.Done():
			}
			found, err := n.state()
			e := (*Error)(nil)
			partly := (*cluster.NotFoundError)(nil)
			switch {
			case found != nil:
				served = true
			case ReasonOf(err) == UnknownResource && errors.As(err, &e) && !(errors.As(err, &partly) && len(partly.Failed) > 0):
				unknown = append(unknown, e)
			default:
				unasked[name] = append(unasked[name], c.name)
			}
		}
		switch {
		case served:
			delete(unasked, name)
		case len(unknown) == 1 && len(clusters) == 1:
			errs = append(errs, fmt.Errorf("%s: %w", name, unknown[0]))
		case len(unknown) > 0 && len(unknown) == len(clusters):
			errs = append(errs, fmt.Errorf("%s: none of the %d clusters serves it; for example, %w", name, len(clusters), unknown[0]))
		}
	}
	return unasked, errors.Join(errs...)
}
