package clientgo

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/share"
)

// NewSharingIndexInformer is [NewSharedIndexInformer] and [ShareParts], for the
// option NewInformer of controller-runtime's caches.
func NewSharingIndexInformer(lw cache.ListerWatcher, exampleObject runtime.Object, defaultEventHandlerResyncPeriod time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	inf := NewSharedIndexInformer(lw, exampleObject, defaultEventHandlerResyncPeriod, indexers)
	_ = ShareParts(inf) // cannot fail: it is ours, and new
	return inf
}

// ShareParts makes an informer keep equal parts of its objects once: containers,
// volumes, labels and whatever else the pods of a ReplicaSet have in common. That
// takes a third of the memory, and cannot be seen by those who only read, as
// everybody must who has objects of a cache: they are equal to what they were,
// field by field, and are the same pointers. Who writes to one nevertheless now
// writes to others, too. (KUBE_CACHE_MUTATION_DETECTOR finds them.)
//
// The informer rewrites each object once, as it comes from the source or from the
// transform and before anybody else sees it. So the source must not hold on to its
// objects: clients of a server decode them anew each time, fake ones do not.
//
// Objects of Go types are shared, not unstructured ones. The informer must be of
// this package and must not have been started.
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

// shareParts gives an object that nobody else has seen parts of others.
func shareParts(table *share.Table, obj any) {
	if table == nil {
		return
	}
	switch o := obj.(type) {
	case runtime.Unstructured: // nobody can say what is in it
	case metav1.Object:
		table.Object(o)
	}
}
