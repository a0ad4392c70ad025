// Package factory is the common part of client-go's three kinds of informer
// factories: it makes each informer on first use, starts it once, and waits for it.
package factory

import (
	"context"
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Factory holds one informer per key. The zero value is ready to use. A Factory
// is safe for concurrent use.
type Factory[K comparable] struct {
	mu        sync.Mutex
	informers map[K]cache.SharedIndexInformer
	started   map[K]cache.SharedIndexInformer
	running   sync.WaitGroup
	closing   bool
}

// Get returns the informer for key, and makes it on the first call.
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

// Start starts the informers that have not been started. They run until ctx
// ends. Start does not wait for them. After Shutdown it does nothing.
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

// WaitForSync waits until the started informers have synced or ctx ends, and
// returns which have synced.
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

// Shutdown prevents further starts and waits until all informers have ended.
// The contexts they were started with must end.
func (f *Factory[K]) Shutdown() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	f.running.Wait()
}
