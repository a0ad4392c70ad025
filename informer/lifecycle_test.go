package informer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func (r *rig) addWidgets() {
	r.Helper()
	r.must(r.server.AddResource(metav1.APIResource{Group: "example.com", Version: "v1", Name: "widgets", Kind: "Widget", Namespaced: true}))
}

func widget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "default", "name": name},
	}}
}

func TestResourceGoesAndComesBack(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		_, err := r.server.Create(widget("a"))
		r.must(err)
		inf, err := informer.New[*unstructured.Unstructured](r.conn, informer.Resource("widgets.example.com"))
		r.must(err)
		r.stopAfter(inf)
		d := &diary[*unstructured.Unstructured]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		synctest.Wait()
		d.read()

		r.server.RemoveResource(widgets)
		time.Sleep(time.Minute)
		if s := inf.Status(); s.Phase != informer.Gone || s.Synced || s.Objects != 0 || !apierrors.IsNotFound(s.LastError) {
			t.Errorf("without its resource the status is %+v", s)
		}
		if told := d.read(); len(told) != 1 || told[0] != "DELETED default/a tombstone" && told[0] != "DELETED default/a" {
			t.Errorf("told %q", told)
		}
		r.addWidgets()
		_, err = r.server.Create(widget("b"))
		r.must(err)
		r.must(inf.WaitForSync(r.within(2 * time.Minute)))
		synctest.Wait()
		if _, ok := inf.Get("default", "b"); !ok || inf.Status().Phase != informer.Watching {
			t.Errorf("the resource that came back was not picked up: %+v", inf.Status())
		}
		if told := d.read(); len(told) != 1 || told[0] != "ADDED default/b initial" {
			t.Errorf("told %q", told)
		}
	})
}

func TestPermissionIsRevokedAndGrantedAgain(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "SYNCED")
		giveBack := r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Resource == configMaps {
				return fakeapi.StatusFault(forbidden(req.Verb))
			}
			return nil
		})
		r.server.AbortWatches(configMaps)
		r.set("default", "a", "2")
		time.Sleep(time.Minute)
		if s := inf.Status(); s.Phase != informer.Denied || !apierrors.IsForbidden(s.LastError) || !s.Synced {
			t.Errorf("without the right the status is %+v", s)
		}
		r.expect(d)
		changed := inf.StatusChanged()
		giveBack()
		<-changed
		time.Sleep(time.Minute)
		r.expect(d, "MODIFIED default/a 1>2")
		if s := inf.Status(); s.Phase != informer.Watching || s.Lists != 1 {
			t.Errorf("with the right the status is %+v", s)
		}
	})
}

func TestAnotherCluster(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		other := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(other)
		defer stop()
		conn, err := cluster.New("other", config)
		r.must(err)
		_, err = other.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"v": "other"}})
		r.must(err)

		f := informer.NewFactory(r.conn)
		r.stopAfter(f)
		inf, err := informer.For[*corev1.ConfigMap](f)
		r.must(err)
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(f.Start(r.ctx))
		synctest.Wait()
		d.read()
		r.must(f.SetCluster(r.ctx, conn))
		r.expect(d, "DELETED default/a 1>1 tombstone", "DELETED default/b 1>1 tombstone")
		r.holds(inf)
		r.must(f.Start(r.ctx))
		r.expect(d, "ADDED default/a >other initial")
		if s := inf.Status(); s.Cluster != "other" {
			t.Errorf("the status is of cluster %s", s.Cluster)
		}
		r.must(inf.Stop(r.ctx))
	})
}

func TestViewAt(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		r.must(inf.Start(r.ctx))
		version := r.set("default", "a", "1")
		view, err := inf.ViewAt(r.ctx, version)
		r.must(err)
		defer view.Release()
		if cm, ok := view.Get("default", "a"); !ok || cm.Data["v"] != "1" || view.ResourceVersion() < version {
			t.Errorf("a view of at least %s is of %s and holds %v", version, view.ResourceVersion(), cm)
		}
	})
}

// TestRelistReusesObjects: an object whose version is held already is not made
// again, by a WatchList stream or by pages, in JSON or in protobuf, and so its
// readers go on sharing one.
func TestRelistReusesObjects(t *testing.T) {
	for name, opts := range map[string]fakeapi.Options{"WatchList": {}, "pages": {NoWatchList: true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, opts, func(r *rig) {
				r.set("default", "a", "1")
				r.set("default", "b", "1")
				made := 0
				typed := r.configMapInformer(informer.Transform(func(cm *corev1.ConfigMap) (*corev1.ConfigMap, error) { made++; return cm, nil }))
				dynamic, err := informer.New[*unstructured.Unstructured](r.conn, informer.Resource("cm"))
				r.must(err)
				r.stopAfter(dynamic)
				r.must(typed.Start(r.ctx))
				r.must(dynamic.Start(r.ctx))
				a, _ := typed.Get("default", "a")
				b, _ := typed.Get("default", "b")
				u, _ := dynamic.Get("default", "a")
				r.server.SetDown(true)
				r.server.AbortWatches(configMaps)
				r.set("default", "b", "2")
				r.server.Compact()
				r.server.SetDown(false)
				time.Sleep(2 * time.Minute)
				if typed.Status().Lists != 2 || dynamic.Status().Lists != 2 {
					t.Fatalf("no relist: %+v", typed.Status())
				}
				if again, _ := typed.Get("default", "a"); again != a {
					t.Error("an unchanged typed object was made again")
				}
				if again, _ := dynamic.Get("default", "a"); again != u {
					t.Error("an unchanged unstructured object was made again")
				}
				if again, _ := typed.Get("default", "b"); again == b || again.Data["v"] != "2" {
					t.Errorf("a changed object is %v", again)
				}
				if made != 3 {
					t.Errorf("%d objects were made, not 3", made)
				}
			})
		})
	}
}

// TestTransformComesBeforeSharing: what a transform changes is its object's own,
// however much of it other objects will have in common.
func TestTransformComesBeforeSharing(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 20 {
			_, err := r.server.Create(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("p-%02d", i)},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "image", Args: []string{"a", "b"}}}},
			})
			r.must(err)
		}
		inf, err := informer.New[*corev1.Pod](r.conn, informer.Transform(func(p *corev1.Pod) (*corev1.Pod, error) {
			p.Spec.Containers[0].Args[0] = p.Name
			return p, nil
		}))
		r.must(err)
		r.stopAfter(inf)
		r.must(inf.Start(r.ctx))
		for _, p := range inf.List(informer.Query{}) {
			if p.Spec.Containers[0].Args[0] != p.Name || p.Spec.Containers[0].Args[1] != "b" {
				t.Errorf("%s has the arguments %v", p.Name, p.Spec.Containers[0].Args)
			}
		}
	})
}
