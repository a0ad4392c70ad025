package mirror

import (
	"sync"
	"time"

	"github.com/tidings-io/tidings/cluster"
)

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
func (n *naming) pursue(c *Cluster) {
	pause := time.Second
	for c.ctx.Err() == nil {
		r, err := c.cluster.Resolve(c.ctx, n.name)
		if c.ctx.Err() != nil {
			return
		}
		if err != nil {
			n.note(nil, c.Upstream("look up the resource "+n.name, err))
		} else {
			n.note(&r, nil)
			var k *Informer
			if k, err = c.keep(r, ""); err == nil {
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
			n.note(&r, err)
		}
		c.mirror.log.Warn("cannot mirror a resource that was asked for", "cluster", c.name, "resource", n.name, "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return
		}
		pause = min(2*pause, 30*time.Second)
	}
}
