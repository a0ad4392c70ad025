package clientgo_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tidings-io/tidings/informer/clientgo"
)

// late is a source that does not list until it is ready.
type late struct {
	*fcache.FakeControllerSource
	ready atomic.Bool
}

func (s *late) List(options metav1.ListOptions) (runtime.Object, error) {
	if !s.ready.Load() {
		return nil, errors.New("not yet")
	}
	return s.FakeControllerSource.List(options)
}

func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &late{FakeControllerSource: fcache.NewFakeControllerSource()}
		defer source.Shutdown()
		source.Add(pod("a", "1"))
		theirs := cache.NewSharedIndexInformerWithOptions(source, &corev1.Pod{}, cache.SharedIndexInformerOptions{
			ResyncPeriod:      time.Minute,
			ObjectDescription: "pods of a test",
			Indexers:          cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		})
		failed := ""
		if err := theirs.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failed = err.Error() }); err != nil {
			t.Fatal(err)
		}
		if err := theirs.SetTransform(func(obj any) (any, error) {
			obj.(*corev1.Pod).Labels["color"] += "x"
			return obj, nil
		}); err != nil {
			t.Fatal(err)
		}
		// As in generated code, behind two typed wrappers.
		typed := cache.NewTypedSharedIndexInformer[*corev1.Pod](cache.NewTypedSharedIndexInformer[*corev1.Pod](theirs))
		inf, err := clientgo.Adopt(typed)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := clientgo.Adopt(inf); again != inf || err != nil {
			t.Error("an informer of this package was not returned unchanged:", err)
		}
		l := &recordingHandler{t: t}
		if _, err := inf.AddEventHandler(l); err != nil {
			t.Fatal(err)
		}
		stop := inBackground(t, inf.RunWithContext)
		synctest.Wait()
		if !strings.Contains(failed, "pods of a test") {
			t.Errorf("the error handler got %q", failed)
		}
		source.ready.Store(true)
		time.Sleep(5 * time.Second)
		l.expect("add a=1x initial")
		if found, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "ns"); len(found) != 1 || err != nil {
			t.Error("the index found", found, err)
		}
		time.Sleep(time.Minute)
		l.expect("update a=1x a=1x")
		stop()
		if len(theirs.GetStore().List()) != 0 {
			t.Error("client-go's informer has run")
		}
	})
}

func TestAdoptRefuses(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	defer source.Shutdown()
	theirs := cache.NewSharedIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
	if _, err := theirs.AddEventHandler(&recordingHandler{t: t}); err != nil {
		t.Fatal(err)
	}
	if _, err := clientgo.Adopt(theirs); err == nil {
		t.Error("an informer with a handler was adopted")
	}
	if _, err := clientgo.Adopt(struct{ cache.SharedIndexInformer }{}); err == nil {
		t.Error("something else was adopted")
	}
}
