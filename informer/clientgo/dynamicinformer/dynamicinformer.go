// Package dynamicinformer is client-go's package dynamic/dynamicinformer on the
// engine of Tidings. It exports the same names, so only the import changes.
package dynamicinformer

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	upstream "k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
	"github.com/tidings-io/tidings/informer/clientgo/internal/factory"
)

// DynamicSharedInformerFactory and TweakListOptionsFunc are client-go's.
type (
	DynamicSharedInformerFactory = upstream.DynamicSharedInformerFactory
	TweakListOptionsFunc         = upstream.TweakListOptionsFunc
)

// NewDynamicSharedInformerFactory returns a factory of informers of
// unstructured objects in all namespaces. It is safe for concurrent use.
func NewDynamicSharedInformerFactory(client dynamic.Interface, defaultResync time.Duration) DynamicSharedInformerFactory {
	return NewFilteredDynamicSharedInformerFactory(client, defaultResync, metav1.NamespaceAll, nil)
}

// NewFilteredDynamicSharedInformerFactory returns a factory for one namespace,
// with a function that changes the list options.
func NewFilteredDynamicSharedInformerFactory(client dynamic.Interface, defaultResync time.Duration, namespace string, tweakListOptions TweakListOptionsFunc) DynamicSharedInformerFactory {
	return &sharedFactory{client: client, resync: defaultResync, namespace: namespace, tweak: tweakListOptions}
}

// NewFilteredDynamicInformer returns the informer and the lister of one
// resource.
func NewFilteredDynamicInformer(client dynamic.Interface, gvr schema.GroupVersionResource, namespace string, resyncPeriod time.Duration, indexers cache.Indexers, tweakListOptions TweakListOptionsFunc) informers.GenericInformer {
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
	return genericInformer{gvr, clientgo.NewSharedIndexInformerWithOptions(lw, &unstructured.Unstructured{}, cache.SharedIndexInformerOptions{
		ResyncPeriod: resyncPeriod, Indexers: indexers, ObjectDescription: gvr.String(),
		Identifier: (*cache.InformerName)(nil).WithResource(gvr), // for the status
	})}
}

// sharedFactory has one informer per resource.
type sharedFactory struct {
	client    dynamic.Interface
	resync    time.Duration
	namespace string
	tweak     TweakListOptionsFunc
	shared    factory.Factory[schema.GroupVersionResource]
}

func (f *sharedFactory) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	return genericInformer{gvr, f.shared.Get(gvr, func() cache.SharedIndexInformer {
		byNamespace := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		return NewFilteredDynamicInformer(f.client, gvr, f.namespace, f.resync, byNamespace, f.tweak).Informer()
	})}
}

func (f *sharedFactory) Start(stopCh <-chan struct{}) { f.shared.Start(wait.ContextForChannel(stopCh)) }
func (f *sharedFactory) Shutdown()                    { f.shared.Shutdown() }

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
	return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(g.inf.GetIndexer(), g.gvr))
}
