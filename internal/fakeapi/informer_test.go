package fakeapi_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A client-go informer, whatever goes wrong on the way, comes to hold what
// the cluster holds.
func TestInformerHoldsWhatTheClusterHolds(t *testing.T) {
	for name, opts := range map[string]fakeapi.Options{"watch list": {}, "list and watch": {NoWatchList: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, opts, func(r *rig) {
				for i := range 20 {
					r.create(configMap("default", "cm-"+strconv.Itoa(i), nil))
				}
				ctx, cancel := context.WithCancel(r.ctx)
				client, err := kubernetes.NewForConfig(r.config)
				r.must(err)
				factory := informers.NewSharedInformerFactory(client, 0)
				informer := factory.Core().V1().ConfigMaps().Informer()
				factory.StartWithContext(ctx)
				defer factory.Shutdown()
				defer cancel()
				factory.WaitForCacheSync(ctx.Done())
				if streamed := r.cluster.Count("list", configMapsGVR) == 0; streamed == opts.NoWatchList {
					r.Errorf("requests: %v", r.cluster.Requests())
				}
				same := func() string {
					synctest.Wait()
					held, _, err := r.cluster.List(configMapsGVR, "")
					r.must(err)
					want, got := map[string]*corev1.ConfigMap{}, map[string]*corev1.ConfigMap{}
					for _, obj := range held {
						want[obj.GetNamespace()+"/"+obj.GetName()] = obj.(*corev1.ConfigMap)
					}
					for _, obj := range informer.GetStore().List() {
						cm := obj.(*corev1.ConfigMap)
						got[cm.Namespace+"/"+cm.Name] = cm
					}
					return cmp.Diff(want, got)
				}
				if diff := same(); diff != "" {
					r.Fatal("after the start:", diff)
				}
				trouble := []func(){
					func() {},
					func() { r.cluster.CloseWatches(configMapsGVR) },
					func() { r.cluster.AbortWatches(configMapsGVR) },
					func() { r.cluster.AbortWatches(configMapsGVR); r.cluster.Compact() },
					func() { r.cluster.FailWatches(configMapsGVR, apierrors.NewResourceExpired("gone")) },
					func() {
						r.cluster.SetDown(true)
						time.AfterFunc(time.Minute, func() { r.cluster.SetDown(false) })
					},
				}
				for i, cause := range trouble {
					cause()
					for n := range 10 {
						_, err := r.cluster.Update(configMap("default", "cm-"+strconv.Itoa(n), map[string]string{"round": strconv.Itoa(i)}))
						r.must(err)
					}
					r.must(r.cluster.Delete(configMapsGVR, "default", "cm-"+strconv.Itoa(10+i)))
					time.Sleep(5 * time.Minute) // of the bubble: longer than any backoff
					if diff := same(); diff != "" {
						r.Errorf("after trouble %d: %s", i, diff)
					}
				}
			})
		})
	}
}
