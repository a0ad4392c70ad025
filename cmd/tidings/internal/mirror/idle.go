package mirror

import (
	"sync/atomic"
	"time"
)

// use tracks how an informer is used, so that one started on demand can be stopped
// when it is idle.
type use struct {
	born     time.Time    // with a monotonic clock reading
	named    atomic.Bool  // is in Options.Resources: never stopped
	watches  atomic.Int32 // open
	lastRead atomic.Int64 // in nanoseconds since born
}

// touch records a read.
func (u *use) touch() { u.lastRead.Store(int64(time.Since(u.born))) }

// beginWatch records a watch. The caller must call end when the watch ends.
func (u *use) beginWatch() (end func()) {
	u.watches.Add(1)
	return func() {
		u.touch()
		u.watches.Add(-1)
	}
}

// idle is the time since the last use.
func (u *use) idle() time.Duration {
	if u.named.Load() || u.watches.Load() > 0 {
		return 0
	}
	return max(0, time.Since(u.born)-time.Duration(u.lastRead.Load()))
}

// endWhenIdle ends the informer once it has been idle for [Options.IdleTimeout]. The
// next read starts a new one.
func (k *Informer) endWhenIdle() {
	limit := k.cluster.mirror.opts.IdleTimeout
	if limit <= 0 {
		return
	}
	for {
		next := time.NewTimer(max(limit-k.use.idle(), time.Second))
		select {
		case <-next.C:
		case <-k.ctx.Done():
			next.Stop()
			return
		}
		if k.cluster.forget(k, limit) {
			k.cluster.mirror.log.Info("an idle resource is no longer mirrored", "cluster", k.cluster.name, "resource", k.resource.String(), "idle", limit)
			k.cancel(errIdle)
			return
		}
	}
}
