package demo_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Informers of all sorts, on a cluster at ten times the speed whose
// connections break, hold what the cluster holds.
func TestInformersFollowTheWorkload(t *testing.T) {
	running(t, demo.Workload{Pods: 80, Speed: 10}, fakeapi.Options{}, func(r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		client, err := kubernetes.NewForConfig(r.config)
		r.must(err)
		factory := informers.NewSharedInformerFactory(client, 0)
		metas := metadatainformer.NewSharedInformerFactory(r.metadata, 0)
		held := map[schema.GroupVersionResource]cache.Store{}
		for _, gvr := range []schema.GroupVersionResource{podsGVR, deploymentsGVR, slicesGVR} {
			informer, err := factory.ForResource(gvr)
			r.must(err)
			held[gvr] = informer.Informer().GetStore()
		}
		for _, gvr := range []schema.GroupVersionResource{eventsGVR, nodesGVR} {
			held[gvr] = metas.ForResource(gvr).Informer().GetStore()
		}
		factory.StartWithContext(ctx)
		metas.Start(ctx.Done())
		defer factory.Shutdown()
		defer metas.Shutdown()
		defer cancel()
		factory.WaitForCacheSync(ctx.Done())
		metas.WaitForCacheSync(ctx.Done())
		for round := range 10 {
			time.Sleep(20 * time.Second)
			switch round {
			case 2:
				r.cluster.AbortWatches(podsGVR)
			case 4:
				r.cluster.AbortWatches(podsGVR)
				r.cluster.Compact()
			case 6:
				r.cluster.FailWatches(podsGVR, apierrors.NewResourceExpired("gone"))
			}
			if round >= 2 {
				time.Sleep(time.Minute) // longer than the backoff
			}
			synctest.Wait()
			for gvr, store := range held {
				want, got := []string{}, []string{}
				for _, obj := range listed[fakeapi.Object](r, gvr) {
					want = append(want, key(obj)+" "+obj.GetResourceVersion())
				}
				for _, obj := range store.List() {
					o := obj.(metav1.Object)
					got = append(got, key(o)+" "+o.GetResourceVersion())
				}
				slices.Sort(want)
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					r.Errorf("%s in round %d: %s", gvr.Resource, round, diff)
				}
			}
		}
	})
}
