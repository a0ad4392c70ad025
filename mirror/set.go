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

// Set makes these the clusters of the mirror, by name. A cluster whose config
// is the same pointer as before is left alone. One with another pointer is
// replaced: its informers are emptied, and those of the resources asked for by
// name start anew. One that is not in the map any more is removed. Watches on
// what goes end with an [*Error] of reason [Ended]; its memory is given back.
//
// Set returns when everything that had to go is gone, or ctx ends: then that
// goes on by itself. A config that cannot be used changes nothing about its
// name, and is reported in the error; the others are set all the same.
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
			m.leave(old, errRemoved)
		default:
			m.log.Info("cluster replaced: its configuration has changed", "cluster", name)
			m.leave(old, errReplaced)
		}
	}
	for name, c := range after {
		if before[name] == nil {
			m.log.Info("cluster added", "cluster", name, "server", c.cluster.BaseURL().Redacted())
		}
		if before[name] != c {
			c.start()
		}
	}
	return errors.Join(append(errs, m.left(ctx))...)
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

// leave ends a cluster that is not in use any more, in the background. m.setting
// is held.
func (m *Mirror) leave(old *Cluster, why *Error) {
	gone := make(chan struct{})
	m.leaving = append(m.leaving, gone)
	go func() {
		defer close(gone)
		old.end(why)
		// It may have held gigabytes, and it may be hours before anything
		// else makes the collector look.
		debug.FreeOSMemory()
	}()
}

// left waits until clusters that leave are gone. m.setting is held.
func (m *Mirror) left(ctx context.Context) error {
	for len(m.leaving) > 0 {
		select {
		case <-m.leaving[0]:
			m.leaving = m.leaving[1:]
		case <-ctx.Done():
			return fmt.Errorf("mirror: wait for removed clusters to be emptied: %w", context.Cause(ctx))
		}
	}
	return nil
}

// Follow gives the mirror every set of clusters that comes, as
// [github.com/tidings-io/tidings/cluster.Watch] yields them, until the sequence
// or ctx ends. An error that comes with a set is logged and takes no cluster
// away. If the first step has no set at all, Follow returns its error.
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
			m.log.Warn("not every cluster could be set", "err", err)
		}
	}
	return nil
}
