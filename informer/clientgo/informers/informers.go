// Package informers is client-go's package informers on the engine of Tidings.
// It has the same names: import the one in the place of the other. The factories
// are client-go's SharedInformerFactory, with all its groups, typed informers and
// listers.
package informers

import (
	"context"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	upstream "k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/clientgo/internal/adopt"
	"github.com/tidings-io/tidings/informer/clientgo/internal/factory"
)

// SharedInformerFactory and GenericInformer are client-go's.
type (
	SharedInformerFactory = upstream.SharedInformerFactory
	GenericInformer       = upstream.GenericInformer
)

// SharedInformerOption changes how a factory makes its informers.
type SharedInformerOption func(*sharedFactory)

// WithCustomResyncConfig sets the resync period of informers by the type of
// their objects.
func WithCustomResyncConfig(resyncConfig map[metav1.Object]time.Duration) SharedInformerOption {
	return func(f *sharedFactory) {
		for object, period := range resyncConfig {
			f.resyncOf[reflect.TypeOf(object)] = period
		}
	}
}

// WithTweakListOptions changes the options of every list and watch.
func WithTweakListOptions(tweakListOptions internalinterfaces.TweakListOptionsFunc) SharedInformerOption {
	return func(f *sharedFactory) { f.tweak = tweakListOptions }
}

// WithNamespace limits informers of namespaced resources to one namespace.
func WithNamespace(namespace string) SharedInformerOption {
	return func(f *sharedFactory) { f.namespace = namespace }
}

// WithTransform sets a transform on all informers.
func WithTransform(transform cache.TransformFunc) SharedInformerOption {
	return func(f *sharedFactory) { f.transform = transform }
}

// WithInformerName sets the name that metrics know the informers by. It is
// released by Shutdown.
func WithInformerName(informerName *cache.InformerName) SharedInformerOption {
	return func(f *sharedFactory) { f.name = informerName }
}

// WithUnsharedParts keeps each object by itself. Otherwise informers over a client
// of a server keep equal parts of their objects once, see [clientgo.ShareParts]; over
// a fake client they never do.
func WithUnsharedParts() SharedInformerOption {
	return func(f *sharedFactory) { f.unshared = true }
}

// NewSharedInformerFactory returns a factory for all namespaces. It may be used
// from any goroutine.
func NewSharedInformerFactory(client kubernetes.Interface, defaultResync time.Duration) SharedInformerFactory {
	return NewSharedInformerFactoryWithOptions(client, defaultResync)
}

// NewFilteredSharedInformerFactory is the same for one namespace, or with list
// options of one's own.
//
// Deprecated: use NewSharedInformerFactoryWithOptions.
func NewFilteredSharedInformerFactory(client kubernetes.Interface, defaultResync time.Duration, namespace string, tweakListOptions internalinterfaces.TweakListOptionsFunc) SharedInformerFactory {
	return NewSharedInformerFactoryWithOptions(client, defaultResync, WithNamespace(namespace), WithTweakListOptions(tweakListOptions))
}

// NewSharedInformerFactoryWithOptions is NewSharedInformerFactory with options.
func NewSharedInformerFactoryWithOptions(client kubernetes.Interface, defaultResync time.Duration, options ...SharedInformerOption) SharedInformerFactory {
	f := &sharedFactory{client: client, resync: defaultResync, resyncOf: map[reflect.Type]time.Duration{}}
	for _, option := range options {
		option(f)
	}
	f.pattern = upstream.NewSharedInformerFactoryWithOptions(client, defaultResync,
		upstream.WithNamespace(f.namespace), upstream.WithTweakListOptions(f.tweak))
	return f
}

// sharedFactory shares one informer for each type of object.
type sharedFactory struct {
	client    kubernetes.Interface
	resync    time.Duration
	resyncOf  map[reflect.Type]time.Duration
	namespace string
	tweak     internalinterfaces.TweakListOptionsFunc
	transform cache.TransformFunc
	name      *cache.InformerName
	unshared  bool
	shared    factory.Factory[reflect.Type]
	// pattern is client-go's factory with the same scope. It is asked which
	// informer belongs to a resource, and never started.
	pattern upstream.SharedInformerFactory
}

// InformerFor returns the informer of the type of obj. If nobody has asked for
// it before, newFunc makes it; if that is an informer of client-go's, as with all
// generated code, one of ours takes its place, see [clientgo.Adopt].
func (f *sharedFactory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	of := reflect.TypeOf(obj)
	return f.shared.Get(of, func() cache.SharedIndexInformer {
		period, ok := f.resyncOf[of]
		if !ok {
			period = f.resync
		}
		theirs := newFunc(f.client, period)
		inf, err := clientgo.Adopt(theirs)
		if err != nil {
			klog.Background().Error(err, "This informer stays what it is", "type", of)
			inf = theirs
		}
		if _, real := f.client.(*kubernetes.Clientset); real && !f.unshared {
			_ = clientgo.ShareParts(inf) // one that stays what it is keeps its parts, too
		}
		if f.transform != nil {
			_ = inf.SetTransform(f.transform)
		}
		return inf
	})
}

// ForResource returns the informer of a built-in resource, and its lister. The
// error says that there is no such resource.
func (f *sharedFactory) ForResource(resource schema.GroupVersionResource) (GenericInformer, error) {
	pattern, err := f.pattern.ForResource(resource)
	if err != nil {
		return nil, err
	}
	parts, err := adopt.Of(pattern.Informer())
	if err != nil {
		return nil, err
	}
	inf := f.InformerFor(parts.Example, func(_ kubernetes.Interface, period time.Duration) cache.SharedIndexInformer {
		parts.Options.ResyncPeriod = period
		parts.Options.Identifier = f.name.WithResource(resource)
		return clientgo.NewSharedIndexInformerWithOptions(parts.ListerWatcher, parts.Example, parts.Options)
	})
	return generic{resource.GroupResource(), inf}, nil
}

// generic is an informer and what lists its store.
type generic struct {
	resource schema.GroupResource
	inf      cache.SharedIndexInformer
}

func (g generic) Informer() cache.SharedIndexInformer { return g.inf }
func (g generic) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.inf.GetIndexer(), g.resource)
}

// InformerName is the name given with WithInformerName.
func (f *sharedFactory) InformerName() *cache.InformerName { return f.name }

// Start is StartWithContext with a channel.
func (f *sharedFactory) Start(stopCh <-chan struct{}) {
	f.StartWithContext(wait.ContextForChannel(stopCh))
}

// StartWithContext starts the informers that have been asked for and do not run
// yet. It does not wait.
func (f *sharedFactory) StartWithContext(ctx context.Context) { f.shared.Start(ctx) }

// Shutdown waits until all informers have ended, whose contexts must end.
func (f *sharedFactory) Shutdown() {
	f.shared.Shutdown()
	f.name.Release()
}

// WaitForCacheSync is WaitForCacheSyncWithContext with a channel.
func (f *sharedFactory) WaitForCacheSync(stopCh <-chan struct{}) map[reflect.Type]bool {
	return f.shared.WaitForSync(wait.ContextForChannel(stopCh))
}

// WaitForCacheSyncWithContext waits until all informers that have been started
// have synced, or ctx ends.
func (f *sharedFactory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	result := cache.SyncResult{Synced: f.shared.WaitForSync(ctx)}
	for _, synced := range result.Synced {
		if !synced {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}
