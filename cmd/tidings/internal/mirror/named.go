package mirror

import (
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
		c.mirror.log.Warn("cannot mirror a requested resource", "cluster", c.name, "resource", n.name, "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}
