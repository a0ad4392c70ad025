package fakeapi_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

var yes = true

func watchList() metav1.ListOptions {
	return metav1.ListOptions{
		SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
}

func TestWatchFromRevision(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		from := r.cluster.ResourceVersion()
		for i := range 3 {
			r.create(configMap("default", fmt.Sprint("cm-", i), nil))
			r.create(widget("default", fmt.Sprint("w-", i), "red"))
		}
		opts := metav1.ListOptions{ResourceVersion: from}
		viaProtobuf, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, opts)
		r.must(err)
		viaJSON, err := r.dynamic.Resource(configMapsGVR).Watch(r.ctx, opts)
		r.must(err)
		viaMetadata, err := r.metadata.Resource(configMapsGVR).Watch(r.ctx, opts)
		r.must(err)
		custom, err := r.dynamic.Resource(widgetsGVR).Watch(r.ctx, opts)
		r.must(err)
		customMetadata, err := r.metadata.Resource(widgetsGVR).Watch(r.ctx, opts)
		r.must(err)
		one, err := r.typed.CoreV1().ConfigMaps("default").Watch(r.ctx, metav1.ListOptions{ResourceVersion: from, FieldSelector: "metadata.name=cm-1"})
		r.must(err)

		_, err = r.cluster.Update(configMap("default", "cm-1", map[string]string{"a": "b"}))
		r.must(err)
		r.must(r.cluster.Delete(configMapsGVR, "default", "cm-2"))
		last := r.cluster.ResourceVersion()
		for _, w := range []watch.Interface{viaProtobuf, viaJSON, viaMetadata} {
			r.expect(w, "ADDED cm-0", "ADDED cm-1", "ADDED cm-2", "MODIFIED cm-1")
			text, ev := next(w)
			if rv := ev.Object.(metav1.Object).GetResourceVersion(); text != "DELETED cm-2" || rv != last {
				r.Errorf("got %s under revision %s, want the deletion under %s", text, rv, last)
			}
			r.quiet(w)
			w.Stop()
		}
		r.expect(custom, "ADDED w-0", "ADDED w-1", "ADDED w-2")
		custom.Stop()
		r.expect(customMetadata, "ADDED w-0", "ADDED w-1", "ADDED w-2")
		customMetadata.Stop()
		r.expect(one, "ADDED cm-1", "MODIFIED cm-1")
		r.quiet(one)
		one.Stop()
	})
}

func TestWatchOfSelection(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		w, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{
			ResourceVersion: r.cluster.ResourceVersion(), LabelSelector: "in=yes",
		})
		r.must(err)
		defer w.Stop()
		in, out := map[string]string{"in": "yes"}, map[string]string{"in": "no"}
		update := func(labels map[string]string, data string) string {
			cm := configMap("default", "a", labels)
			cm.Data = map[string]string{"data": data}
			obj, err := r.cluster.Update(cm)
			r.must(err)
			return obj.GetResourceVersion()
		}
		r.create(configMap("default", "a", out))
		update(in, "1")
		update(in, "2")
		left := update(out, "3")
		update(out, "4")
		update(in, "5")
		r.must(r.cluster.Delete(configMapsGVR, "default", "a"))

		r.expect(w, "ADDED a", "MODIFIED a")
		text, ev := next(w)
		cm := ev.Object.(*corev1.ConfigMap)
		// An object that leaves is shown as it was, under the new revision.
		if text != "DELETED a" || cm.Data["data"] != "2" || cm.ResourceVersion != left {
			r.Errorf("leaving: %s with %v under %s, want the old data under %s", text, cm.Data, cm.ResourceVersion, left)
		}
		r.expect(w, "ADDED a", "DELETED a")
		r.quiet(w)
	})
}

func TestWatchWithoutRevisionStartsWithTheState(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, func(r *rig) {
		r.create(configMap("default", "a", nil))
		for _, rv := range []string{"", "0"} {
			w, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: rv})
			r.must(err)
			r.expect(w, "ADDED a")
			r.quiet(w)
			w.Stop()
		}
	})
}

func TestWatchList(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		r.create(configMap("default", "a", nil))
		r.create(configMap("default", "b", nil))
		r.create(widget("default", "w", "red"))
		watchers := map[string]func() (watch.Interface, error){
			"typed":    func() (watch.Interface, error) { return r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, watchList()) },
			"dynamic":  func() (watch.Interface, error) { return r.dynamic.Resource(configMapsGVR).Watch(r.ctx, watchList()) },
			"metadata": func() (watch.Interface, error) { return r.metadata.Resource(configMapsGVR).Watch(r.ctx, watchList()) },
		}
		for name, start := range watchers {
			w, err := start()
			r.must(err)
			r.expect(w, "ADDED a", "ADDED b")
			text, ev := next(w)
			if rv := ev.Object.(metav1.Object).GetResourceVersion(); text != "BOOKMARK end-of-initial-events" || rv != r.cluster.ResourceVersion() {
				r.Errorf("%s: got %q at %s", name, text, rv)
			}
			obj := r.create(configMap("default", "z-"+name, nil))
			r.expect(w, "ADDED "+obj.GetName())
			w.Stop()
			r.must(r.cluster.Delete(configMapsGVR, "default", obj.GetName()))
		}
		custom, err := r.dynamic.Resource(widgetsGVR).Watch(r.ctx, watchList())
		r.must(err)
		r.expect(custom, "ADDED w", "BOOKMARK end-of-initial-events")
		custom.Stop()
	})
}

func TestWatchListRefused(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, func(r *rig) {
		_, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, watchList())
		if !apierrors.IsInvalid(err) {
			r.Errorf("got %v, want Invalid", err)
		}
	})
}

func TestWatchTooOld(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		old := r.cluster.ResourceVersion()
		r.create(configMap("default", "a", nil))
		r.cluster.Compact()
		w, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: old})
		r.must(err) // as from a real watch cache: 200, and the error is an event
		r.expect(w, "ERROR 410 Expired", "end")
		w, err = r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: r.cluster.ResourceVersion()})
		r.must(err)
		r.create(configMap("default", "b", nil))
		r.expect(w, "ADDED b")
		w.Stop()
	})
}

func TestHistoryIsBounded(t *testing.T) {
	inBubble(t, fakeapi.Options{History: 10}, func(r *rig) {
		old := r.cluster.ResourceVersion()
		for i := range 25 {
			r.create(configMap("default", fmt.Sprint("cm-", i), nil))
		}
		w, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{ResourceVersion: old})
		r.must(err)
		r.expect(w, "ERROR 410 Expired", "end")
	})
}

func TestBookmarks(t *testing.T) {
	inBubble(t, fakeapi.Options{BookmarkInterval: 10 * time.Second}, func(r *rig) {
		seconds := int64(25)
		start := time.Now()
		w, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{
			ResourceVersion: r.cluster.ResourceVersion(), AllowWatchBookmarks: true, TimeoutSeconds: &seconds,
		})
		r.must(err)
		silent, err := r.typed.CoreV1().ConfigMaps("").Watch(r.ctx, metav1.ListOptions{
			ResourceVersion: r.cluster.ResourceVersion(), TimeoutSeconds: &seconds,
		})
		r.must(err)
		for _, at := range []time.Duration{10, 20, 25} {
			// Changes of other resources move bookmarks, too.
			r.create(pod("default", fmt.Sprint("p-", int(at)), "", corev1.PodPending))
			text, ev := next(w)
			if text != "BOOKMARK" || ev.Object.(metav1.Object).GetResourceVersion() != r.cluster.ResourceVersion() || time.Since(start) != at*time.Second {
				r.Errorf("got %q at %s after %v", text, ev.Object.(metav1.Object).GetResourceVersion(), time.Since(start))
			}
		}
		r.expect(w, "end")
		r.expect(silent, "end")
	})
}

func TestResourceComesAndGoes(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		widgets := r.dynamic.Resource(widgetsGVR)
		if _, err := widgets.List(r.ctx, metav1.ListOptions{}); !apierrors.IsNotFound(err) {
			r.Fatalf("before it is there: got %v, want NotFound", err)
		}
		r.addWidgets()
		r.create(widget("default", "w", "red"))
		before := r.cluster.ResourceVersion()
		w, err := widgets.Watch(r.ctx, metav1.ListOptions{ResourceVersion: before})
		r.must(err)
		synctest.Wait()
		if n := r.cluster.OpenWatches(widgetsGVR); n != 1 {
			r.Errorf("%d open watches, want 1", n)
		}
		if !r.cluster.RemoveResource(widgetsGVR) || r.cluster.RemoveResource(widgetsGVR) {
			r.Error("RemoveResource does not say right whether it did anything")
		}
		r.expect(w, "DELETED w", "end")
		if _, err := widgets.Watch(r.ctx, metav1.ListOptions{ResourceVersion: before}); !apierrors.IsNotFound(err) {
			r.Errorf("after it has gone: got %v, want NotFound", err)
		}
		r.addWidgets()
		list, err := widgets.List(r.ctx, metav1.ListOptions{})
		r.must(err)
		if len(list.Items) != 0 {
			r.Error("a resource that comes back has its old objects")
		}
		w, err = widgets.Watch(r.ctx, metav1.ListOptions{ResourceVersion: before})
		r.must(err)
		r.expect(w, "ERROR 410 Expired", "end")
	})
}
