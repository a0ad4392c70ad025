// Package metadatainformer is client-go's package metadata/metadatainformer on
// the engine of Tidings. It exports the same names, so only the import changes.
package metadatainformer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	upstream "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/clientgo/internal/factory"
)

// SharedInformerFactory and TweakListOptionsFunc are client-go's.
type (
	SharedInformerFactory = upstream.SharedInformerFactory
	TweakListOptionsFunc  = upstream.TweakListOptionsFunc
)

// SharedInformerOption configures a factory.
type SharedInformerOption func(*sharedFactory)

// WithTransform sets a transform on all informers.
func WithTransform(transform cache.TransformFunc) SharedInformerOption {
	return func(f *sharedFactory) { f.transform = transform }
}

// NewSharedInformerFactory returns a factory of informers of metadata in all
// namespaces. It is safe for concurrent use.
func NewSharedInformerFactory(client metadata.Interface, defaultResync time.Duration) SharedInformerFactory {
	return NewSharedInformerFactoryWithOptions(client, defaultResync)
}

// NewFilteredSharedInformerFactory returns a factory for one namespace, with a
// function that changes the list options.
func NewFilteredSharedInformerFactory(client metadata.Interface, defaultResync time.Duration, namespace string, tweakListOptions TweakListOptionsFunc) SharedInformerFactory {
	return &sharedFactory{client: client, resync: defaultResync, namespace: namespace, tweak: tweakListOptions}
}

// NewSharedInformerFactoryWithOptions is NewSharedInformerFactory with options.
func NewSharedInformerFactoryWithOptions(client metadata.Interface, defaultResync time.Duration, options ...SharedInformerOption) SharedInformerFactory {
	f := &sharedFactory{client: client, resync: defaultResync, namespace: metav1.NamespaceAll}
	for _, option := range options {
		option(f)
	}
	return f
}

// NewFilteredMetadataInformer returns the informer and the lister of one
// resource.
func NewFilteredMetadataInformer(client metadata.Interface, gvr schema.GroupVersionResource, namespace string, resyncPeriod time.Duration, indexers cache.Indexers, tweakListOptions TweakListOptionsFunc) informers.GenericInformer {
	tweaked := func(options metav1.ListOptions) metav1.ListOptions {
		if tweakListOptions != nil {
			tweakListOptions(&options)
		}
		return options
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(gvr).Namespace(namespace).List(ctx, tweaked(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return client.Resource(gvr).Namespace(namespace).Watch(ctx, tweaked(options))
		},
	}, client)
	return genericInformer{gvr, clientgo.NewSharedIndexInformerWithOptions(lw, &metav1.PartialObjectMetadata{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: resyncPeriod, Indexers: indexers,
		Identifier: (*cache.InformerName)(nil).WithResource(gvr), // for the status
	})}
}

// sharedFactory has one informer per resource.
type sharedFactory struct {
	client    metadata.Interface
	resync    time.Duration
	namespace string
	tweak     TweakListOptionsFunc
	transform cache.TransformFunc
	shared    factory.Factory[schema.GroupVersionResource]
}

func (f *sharedFactory) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	return genericInformer{gvr, f.shared.Get(gvr, func() cache.SharedIndexInformer {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		inf := NewFilteredMetadataInformer(f.client, gvr, f.namespace, f.resync, byNamespace, f.tweak).Informer()
		_ = inf.SetTransform(f.transform) // cannot fail: not started yet
		return inf
	})}
}

func (f *sharedFactory) Start(stopCh <-chan struct{}) {
	f.StartWithContext(wait.ContextForChannel(stopCh))
}

// StartWithContext is Start with a context; the interface does not have it.
func (f *sharedFactory) StartWithContext(ctx context.Context) { f.shared.Start(ctx) }

func (f *sharedFactory) Shutdown() { f.shared.Shutdown() }

func (f *sharedFactory) WaitForCacheSync(stopCh <-chan struct{}) map[schema.GroupVersionResource]bool {
	return f.shared.WaitForSync(wait.ContextForChannel(stopCh))
}

// genericInformer is an informer with a lister of its store.
type genericInformer struct {
	gvr schema.GroupVersionResource
	inf cache.SharedIndexInformer
}

func (g genericInformer) Informer() cache.SharedIndexInformer { return g.inf }

func (g genericInformer) Lister() cache.GenericLister {
	return metadatalister.NewRuntimeObjectShim(metadatalister.New(g.inf.GetIndexer(), g.gvr))
}
