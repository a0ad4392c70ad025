package mirror

import (
	"sync/atomic"
	"time"
)

// use is what is known of the readers of an informer, for those that are mirrored
// only because somebody once asked.
type use struct {
	born     time.Time    // has a reading of the monotonic clock
	named    atomic.Bool  // asked for by name: to be kept in any case
	watches  atomic.Int32 // open
	lastRead atomic.Int64 // in nanoseconds since born
}

// touch notes a read.
func (u *use) touch() { u.lastRead.Store(int64(time.Since(u.born))) }

// begin notes a watch; end is to be called when it ends.
func (u *use) begin() (end func()) {
	u.watches.Add(1)
	return func() {
		u.touch()
		u.watches.Add(-1)
	}
}

// since is for how long nobody has read.
func (u *use) since() time.Duration {
	if u.named.Load() || u.watches.Load() > 0 {
		return 0
	}
	return time.Since(u.born) - time.Duration(u.lastRead.Load())
}

// await ends the informer when nobody has read from it for [Options.Unread]. The
// next one who asks has it started anew.
func (k *Informer) await() {
	limit := k.cluster.mirror.opts.Unread
	if limit <= 0 {
		return
	}
	for {
		next := time.NewTimer(max(limit-k.use.since(), time.Second))
		select {
		case <-next.C:
		case <-k.ctx.Done():
			next.Stop()
			return
		}
		if k.cluster.drop(k, limit) {
			k.cluster.mirror.log.Info("nobody reads a resource any more: it is no longer mirrored", "cluster", k.cluster.name, "resource", k.resource.String(), "unread", limit)
			k.cancel(errUnread)
			return
		}
	}
}

// drop forgets an informer if nobody has read from it for so long.
func (c *Cluster) drop(k *Informer, unread time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return k.use.since() >= unread && c.forgetLocked(k)
}
