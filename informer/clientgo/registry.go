package clientgo

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
)

// Registry keeps track of informers, so that the state of all of them can be
// shown. It can make them, which is of use where somebody else asks for them, as
// controller-runtime does:
//
//	var informers clientgo.Registry
//	options := cache.Options{NewInformer: informers.NewSharedIndexInformer}
//	registry.MustRegister(metrics.NewCollector(informers.Statuses))
//
// Informers that have stopped are forgotten. The zero value is usable, by any
// number of goroutines.
type Registry struct {
	mu        sync.Mutex
	informers []cache.SharedIndexInformer
}

// NewSharedIndexInformer is the function [NewSharedIndexInformer], and adds what
// it returns to the registry.
func (r *Registry) NewSharedIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf := NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, indexers)
	r.Add(inf)
	return inf
}

// Add adds an informer, one that a factory made for instance. One that is not of
// this package, or is there already, is left out.
func (r *Registry) Add(inf cache.SharedIndexInformer) {
	if _, ok := Observe(inf); !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.prune()
	if !slices.Contains(r.informers, inf) {
		r.informers = append(r.informers, inf)
	}
}

// Statuses are the states of all informers that have not stopped.
func (r *Registry) Statuses() []informer.Status {
	r.mu.Lock()
	r.prune()
	all := slices.Clone(r.informers)
	r.mu.Unlock()
	out := make([]informer.Status, 0, len(all))
	for _, inf := range all {
		if one, ok := Observe(inf); ok {
			out = append(out, one.Status())
		}
	}
	return out
}

// prune forgets what has stopped.
func (r *Registry) prune() {
	r.informers = slices.DeleteFunc(r.informers, cache.SharedIndexInformer.IsStopped)
}
