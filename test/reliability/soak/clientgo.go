package soak

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// clientGo is an unmodified client-go informer with a mirror as its API server.
func (s *soak) clientGo(ctx context.Context, client rest.Interface, r resource, object runtime.Object, name string) error {
	p := newReplay("client-go informer", name, r, s.truth, s.report)
	inf := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, r.plural, "", fields.Everything()), object, 0, cache.Indexers{})
	record := func(what string, o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		m, err := meta.Accessor(o)
		if err != nil {
			return
		}
		p.event(what, keyOf(m.GetNamespace(), m.GetName()), number(m.GetResourceVersion()))
	}
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { record("ADDED", o) },
		UpdateFunc: func(old, now any) {
			was, _ := meta.Accessor(old)
			is, _ := meta.Accessor(now)
			if was.GetResourceVersion() != is.GetResourceVersion() { // otherwise a new list repeats it
				record("MODIFIED", now)
			}
		},
		DeleteFunc: func(o any) { record("DELETED", o) },
	})
	if err != nil {
		return err
	}
	go func() {
		if cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
			p.synced()
		}
	}()
	inf.RunWithContext(ctx)
	return nil
}
