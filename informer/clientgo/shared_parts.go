package clientgo

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/share"
)

// NewSharingIndexInformer is [NewSharedIndexInformer] followed by [ShareParts].
// Its signature is that of NewInformer in controller-runtime's cache.Options.
func NewSharingIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf := NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, indexers)
	_ = ShareParts(inf) // cannot fail: the informer is new
	return inf
}

// ShareParts makes an informer store equal parts of its objects once: for
// example the containers, volumes and labels that the pods of a ReplicaSet have
// in common. Objects then take about a third of the memory. Readers see no
// difference: an object keeps its pointer and has equal fields. Objects of a
// cache must never be written to; with shared parts, such a write changes other
// objects too. (KUBE_CACHE_MUTATION_DETECTOR reports such writes.)
//
// The informer rewrites each object once, after the source or the transform has
// returned it and before anything else sees it. The source must therefore not
// keep its objects. Clients of a server decode new ones each time; fake clients
// do not.
//
// Typed objects are shared, unstructured ones are not. The informer must be one
// of this package and must not have been started.
func ShareParts(informer cache.SharedIndexInformer) error {
	of, _ := Observe(informer)
	s, ok := of.(*sharedIndexInformer)
	if !ok {
		return fmt.Errorf("share parts: %T is not an informer of this package", informer)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return fmt.Errorf("share parts: %w", errStarted)
	}
	s.shared = share.New()
	return nil
}

// shareParts replaces parts of an object that nothing else has seen by equal
// parts of other objects.
func shareParts(table *share.Table, obj any) {
	if table == nil {
		return
	}
	switch o := obj.(type) {
	case runtime.Unstructured: // its content has no fixed type
	case metav1.Object:
		table.Object(o)
	}
}
