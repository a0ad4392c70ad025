package clientgo

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
)

// Registry keeps a set of informers, to show the state of all of them. It can
// also make the informers, for callers such as controller-runtime that take a
// constructor:
//
//	var informers clientgo.Registry
//	options := cache.Options{NewInformer: informers.NewSharedIndexInformer}
//	registry.MustRegister(metrics.NewCollector(informers.Statuses))
//
// Stopped informers are dropped. The zero value is ready to use. A Registry is
// safe for concurrent use.
type Registry struct {
	mu        sync.Mutex
	informers []cache.SharedIndexInformer
}

// NewSharedIndexInformer calls the function [NewSharedIndexInformer] and adds
// the informer to the registry.
func (r *Registry) NewSharedIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf := NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, indexers)
	r.Add(inf)
	return inf
}

// Add adds an informer, such as one that a factory made. It ignores informers
// of other packages and those it already has.
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

// Statuses returns the states of all informers that have not stopped.
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

// prune drops stopped informers.
func (r *Registry) prune() {
	r.informers = slices.DeleteFunc(r.informers, cache.SharedIndexInformer.IsStopped)
}
