// Package factory holds what client-go's three kinds of informer factories have
// in common: informers that are made when they are first asked for, started
// once, and waited for.
package factory

import (
	"context"
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Factory keeps one informer for each key. The zero value is usable, by any
// number of goroutines.
type Factory[K comparable] struct {
	mu        sync.Mutex
	informers map[K]cache.SharedIndexInformer
	started   map[K]cache.SharedIndexInformer
	running   sync.WaitGroup
	closing   bool
}

// Get returns the informer for key, which is made if nobody has asked before.
func (f *Factory[K]) Get(key K, make func() cache.SharedIndexInformer) cache.SharedIndexInformer {
	f.mu.Lock()
	defer f.mu.Unlock()
	inf, ok := f.informers[key]
	if !ok {
		inf = make()
		if f.informers == nil {
			f.informers, f.started = map[K]cache.SharedIndexInformer{}, map[K]cache.SharedIndexInformer{}
		}
		f.informers[key] = inf
	}
	return inf
}

// Start starts the informers that have not been started, to run until ctx ends.
// It does not wait. After Shutdown it does nothing.
func (f *Factory[K]) Start(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return
	}
	for key, inf := range f.informers {
		if f.started[key] == nil {
			f.started[key] = inf
			f.running.Go(func() { inf.RunWithContext(ctx) })
		}
	}
}

// WaitForSync waits until the informers that have been started have synced, or
// ctx ends, and says which have.
func (f *Factory[K]) WaitForSync(ctx context.Context) map[K]bool {
	f.mu.Lock()
	started := maps.Clone(f.started)
	f.mu.Unlock()
	checkers := make([]cache.DoneChecker, 0, len(started))
	for _, inf := range started {
		checkers = append(checkers, inf.HasSyncedChecker())
	}
	cache.WaitFor(ctx, "", checkers...)
	synced := make(map[K]bool, len(started))
	for key, inf := range started {
		synced[key] = inf.HasSynced()
	}
	return synced
}

// Shutdown starts nothing any more and waits until all that runs has ended; the
// contexts it was started with must end.
func (f *Factory[K]) Shutdown() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.running.Wait()
}
