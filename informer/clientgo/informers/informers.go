// Package informers is client-go's package informers on the engine of Tidings. It
// exports the same names, so only the import changes. Its factories implement
// client-go's SharedInformerFactory, with all groups, typed informers and listers.
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
	"github.com/tidings-io/tidings/informer/clientgo/internal/factory"
	"github.com/tidings-io/tidings/informer/clientgo/internal/unexported"
)

// SharedInformerFactory and GenericInformer are client-go's.
type (
	SharedInformerFactory = upstream.SharedInformerFactory
	GenericInformer       = upstream.GenericInformer
)

// SharedInformerOption configures a factory.
type SharedInformerOption func(*sharedFactory)

// WithCustomResyncConfig sets resync periods by type of object.
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

// WithInformerName sets the name of the informers in metrics. Shutdown releases
// it.
func WithInformerName(informerName *cache.InformerName) SharedInformerOption {
	return func(f *sharedFactory) { f.name = informerName }
}

// WithUnsharedParts turns off the sharing of equal parts of objects. By
// default, informers over a client of a server share them, see
// [clientgo.ShareParts]. Informers over a fake client never do.
func WithUnsharedParts() SharedInformerOption {
	return func(f *sharedFactory) { f.unshared = true }
}

// NewSharedInformerFactory returns a factory for all namespaces. It is safe for
// concurrent use.
func NewSharedInformerFactory(client kubernetes.Interface, defaultResync time.Duration) SharedInformerFactory {
	return NewSharedInformerFactoryWithOptions(client, defaultResync)
}

// NewFilteredSharedInformerFactory returns a factory for one namespace, with a
// function that changes the list options.
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
	f.template = upstream.NewSharedInformerFactoryWithOptions(client, defaultResync,
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
	// template is client-go's factory with the same scope. It says which
	// informer belongs to a resource, and is never started.
	template upstream.SharedInformerFactory
}

// InformerFor returns the informer for the type of obj. On the first call
// newFunc makes it. If that is an informer of client-go's, as with all
// generated code, an informer of this module replaces it, see [clientgo.Adopt].
func (f *sharedFactory) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	objType := reflect.TypeOf(obj)
	return f.shared.Get(objType, func() cache.SharedIndexInformer {
		period, ok := f.resyncOf[objType]
		if !ok {
			period = f.resync
		}
		upstreamInformer := newFunc(f.client, period)
		inf, err := clientgo.Adopt(upstreamInformer)
		if err != nil {
			klog.Background().Error(err, "Cannot replace an informer of client-go's; using it as it is", "type", objType)
			inf = upstreamInformer
		}
		if _, real := f.client.(*kubernetes.Clientset); real && !f.unshared {
			_ = clientgo.ShareParts(inf) // fails for one of client-go's, whose objects stay unshared
		}
		if f.transform != nil {
			_ = inf.SetTransform(f.transform)
		}
		return inf
	})
}

// ForResource returns the informer and the lister of a built-in resource, or an
// error if there is no such resource.
func (f *sharedFactory) ForResource(resource schema.GroupVersionResource) (GenericInformer, error) {
	generic, err := f.template.ForResource(resource)
	if err != nil {
		return nil, err
	}
	config, err := unexported.ConfigOf(generic.Informer())
	if err != nil {
		return nil, err
	}
	inf := f.InformerFor(config.Example, func(_ kubernetes.Interface, period time.Duration) cache.SharedIndexInformer {
		config.Options.ResyncPeriod = period
		config.Options.Identifier = f.name.WithResource(resource)
		return clientgo.NewSharedIndexInformerWithOptions(config.ListerWatcher, config.Example, config.Options)
	})
	return genericInformer{resource.GroupResource(), inf}, nil
}

// genericInformer is an informer with a lister of its store.
type genericInformer struct {
	resource schema.GroupResource
	inf      cache.SharedIndexInformer
}

func (g genericInformer) Informer() cache.SharedIndexInformer { return g.inf }
func (g genericInformer) Lister() cache.GenericLister {
	return cache.NewGenericLister(g.inf.GetIndexer(), g.resource)
}

// InformerName returns the name set with WithInformerName.
func (f *sharedFactory) InformerName() *cache.InformerName { return f.name }

// Start is StartWithContext with a stop channel.
func (f *sharedFactory) Start(stopCh <-chan struct{}) {
	f.StartWithContext(wait.ContextForChannel(stopCh))
}

// StartWithContext starts the informers that have been requested and not
// started yet. It does not wait for them.
func (f *sharedFactory) StartWithContext(ctx context.Context) { f.shared.Start(ctx) }

// Shutdown waits until all informers have ended. Their contexts must end.
func (f *sharedFactory) Shutdown() {
	f.shared.Shutdown()
	f.name.Release()
}

// WaitForCacheSync is WaitForCacheSyncWithContext with a stop channel.
func (f *sharedFactory) WaitForCacheSync(stopCh <-chan struct{}) map[reflect.Type]bool {
	return f.shared.WaitForSync(wait.ContextForChannel(stopCh))
}

// WaitForCacheSyncWithContext waits until all started informers have synced or
// ctx ends.
func (f *sharedFactory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	result := cache.SyncResult{Synced: f.shared.WaitForSync(ctx)}
	for _, synced := range result.Synced {
		if !synced {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}
