package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime/debug"
	"slices"

	"k8s.io/client-go/rest"
)

// Set makes these the clusters of the mirror, by name. A cluster whose config is the
// same pointer as before does not change. One with another pointer is replaced: its
// informers are emptied, and those of [Options.Resources] start again. A cluster that
// is not in the map is removed. Watches on a replaced or removed cluster end with an
// [*Error] of reason [Ended], and its memory is freed.
//
// Set returns when the old clusters are empty. If ctx ends first, that continues in
// the background. A config that cannot be used is reported in the error and leaves the
// cluster of its name unchanged; the others are set.
func (m *Mirror) Set(ctx context.Context, clusters map[string]*rest.Config) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	before := m.current()
	if before == nil {
		return errClosed
	}
	var errs []error
	after := make(map[string]*Cluster, len(clusters))
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		cfg, old := clusters[name], before[name]
		if old != nil && old.config == cfg {
			after[name] = old
			continue
		}
		made, err := newCluster(m, name, cfg)
		if err != nil {
			errs = append(errs, fmt.Errorf("mirror: %w", err))
			if old != nil {
				after[name] = old
			}
			continue
		}
		after[name] = made
	}

	m.mu.Lock()
	m.clusters = after
	m.mu.Unlock()
	for name, old := range before {
		switch after[name] {
		case old:
		case nil:
			m.log.Info("cluster removed", "cluster", name)
			m.retire(old, errRemoved)
		default:
			m.log.Info("cluster replaced: its configuration has changed", "cluster", name)
			m.retire(old, errReplaced)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		c := after[name]
		if before[name] == nil {
			m.log.Info("cluster added", "cluster", name, "server", c.cluster.BaseURL().Redacted())
		}
		if before[name] != c {
			c.start()
		}
	}
	return errors.Join(append(errs, m.waitRetired(ctx))...)
}

// current returns a copy of the clusters, nil when the mirror is closed.
func (m *Mirror) current() map[string]*Cluster {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	return maps.Clone(m.clusters)
}

// retire ends a cluster that was removed or replaced, in the background. The caller
// holds m.setting.
func (m *Mirror) retire(old *Cluster, why *Error) {
	gone := make(chan struct{})
	m.retiring = append(m.retiring, gone)
	go func() {
		defer close(gone)
		old.end(why)
		// The cluster may have had gigabytes, and the next garbage collection may be
		// hours away.
		debug.FreeOSMemory()
	}()
}

// waitRetired waits until retired clusters are empty. The caller holds m.setting.
func (m *Mirror) waitRetired(ctx context.Context) error {
	for len(m.retiring) > 0 {
		select {
		case <-m.retiring[0]:
			m.retiring = m.retiring[1:]
		case <-ctx.Done():
			return fmt.Errorf("mirror: wait for removed clusters to be emptied: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Follow calls [Mirror.Set] with each set of clusters that the sequence yields, see
// [github.com/tidings-io/tidings/cluster.Watch], until the sequence or ctx ends. An
// error in the sequence is logged and removes no cluster. If the first element has an
// error and no set, Follow returns that error.
func (m *Mirror) Follow(ctx context.Context, sets iter.Seq2[map[string]*rest.Config, error]) error {
	first := true
	for set, err := range sets {
		if ctx.Err() != nil {
			break
		}
		if first && set == nil && err != nil {
			return err
		}
		first = false
		if err != nil {
			m.log.Warn("the clusters' configuration has a problem", "err", err)
		}
		if set == nil {
			continue
		}
		if err := m.Set(ctx, set); err != nil {
			if errors.Is(err, errClosed) {
				return err
			}
			m.log.Warn("some clusters could not be set", "err", err)
		}
	}
	return nil
}
