package clientgo_test

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer/clientgo"
)

// replica returns a new pod on each call, as decoding does. Pods differ in
// their names only.
func replica(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("web-%d", i), ResourceVersion: fmt.Sprint(i + 1),
			Labels:        map[string]string{"app": fmt.Sprint("web", 1), "tier": fmt.Sprint("front", 1)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: fmt.Sprint("kubelet", 1), FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: fmt.Sprint("main", 1), Env: []corev1.EnvVar{{Name: fmt.Sprint("COLOUR", 1), Value: "blue"}},
		}}},
	}
}

// replicas is a source of n replicas, then of changes.
type replicas struct {
	n       int
	changes *watch.FakeWatcher
}

func (r *replicas) IsWatchListSemanticsUnSupported() bool { return true }

func (r *replicas) List(metav1.ListOptions) (runtime.Object, error) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(r.n)}}
	for i := range r.n {
		list.Items = append(list.Items, *replica(i))
	}
	return list, nil
}

func (r *replicas) Watch(metav1.ListOptions) (watch.Interface, error) { return r.changes, nil }

// TestShareParts checks that parts are shared, also those of watch events, and
// that objects equal those of the source and of the handlers.
func TestShareParts(t *testing.T) {
	for _, transform := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			source := &replicas{20, watch.NewFake()}
			inf := clientgo.NewSharingIndexInformer(source, &corev1.Pod{}, 0, cache.Indexers{})
			if transform {
				if err := inf.SetTransform(func(obj any) (any, error) {
					obj.(*corev1.Pod).Annotations = map[string]string{"transformed": "yes"}
					return obj, nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			delivered := map[string]*corev1.Pod{}
			if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
				delivered[obj.(*corev1.Pod).Name] = obj.(*corev1.Pod)
			}}); err != nil {
				t.Fatal(err)
			}
			stop := inBackground(t, inf.RunWithContext)
			synctest.Wait()
			added := replica(20)
			source.changes.Add(added)
			synctest.Wait()
			if len(delivered) != 21 || delivered["web-20"] != added {
				t.Errorf("got events of %d pods, and the last was %p, not %p", len(delivered), delivered["web-20"], added)
			}
			last := delivered["web-20"]
			for i := range 21 {
				name := fmt.Sprintf("web-%d", i)
				kept, ok, err := inf.GetStore().GetByKey("shop/" + name)
				if !ok || err != nil || kept != delivered[name] {
					t.Fatalf("%s is kept as %v, %v", name, kept, err)
				}
				want := replica(i)
				if transform {
					want.Annotations = map[string]string{"transformed": "yes"}
				}
				if !reflect.DeepEqual(kept, want) {
					t.Errorf("kept is\n%v, not\n%v", kept, want)
				}
				pod := kept.(*corev1.Pod)
				if i < 10 { // what is new is its own, level by level
					continue
				}
				if unsafe.SliceData(pod.Spec.Containers) != unsafe.SliceData(last.Spec.Containers) || unsafe.SliceData(pod.ManagedFields) != unsafe.SliceData(last.ManagedFields) ||
					reflect.ValueOf(pod.Labels).Pointer() != reflect.ValueOf(last.Labels).Pointer() {
					t.Errorf("%s has parts of its own", name)
				}
			}
			if err := clientgo.ShareParts(inf); err == nil {
				t.Error("an informer that runs begins to share parts")
			}
			stop()
		})
	}
}

// TestPartsAreNotSharedByDefault: a source may keep the objects it returns.
func TestPartsAreNotSharedByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inf := clientgo.NewSharedIndexInformer(&replicas{20, watch.NewFake()}, &corev1.Pod{}, 0, cache.Indexers{})
		stop := inBackground(t, inf.RunWithContext)
		synctest.Wait()
		seen := map[*corev1.Container]bool{}
		for _, obj := range inf.GetStore().List() {
			containers := unsafe.SliceData(obj.(*corev1.Pod).Spec.Containers)
			if seen[containers] {
				t.Error("two pods have their containers in common")
			}
			seen[containers] = true
		}
		stop()
	})
}

func TestShareUnstructured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := watch.NewFake()
		inf := clientgo.NewSharingIndexInformer(&replicas{0, changes}, &unstructured.Unstructured{}, 0, cache.Indexers{})
		stop := inBackground(t, inf.RunWithContext)
		synctest.Wait()
		u := &unstructured.Unstructured{Object: map[string]any{"kind": "Thing", "metadata": map[string]any{"name": "a", "namespace": "n"}}}
		want := u.DeepCopy()
		changes.Add(u)
		synctest.Wait()
		if kept, ok, _ := inf.GetStore().GetByKey("n/a"); !ok || kept != u || !reflect.DeepEqual(kept, want) {
			t.Errorf("it is kept as %v", kept)
		}
		stop()
	})
}

func TestShareOfOthers(t *testing.T) {
	theirs := cache.NewSharedIndexInformer(&replicas{0, watch.NewFake()}, &corev1.Pod{}, 0, cache.Indexers{})
	if err := clientgo.ShareParts(theirs); err == nil {
		t.Error("an informer of client-go's shares parts")
	}
	wrapped := cache.NewTypedSharedIndexInformer[*corev1.Pod](clientgo.NewSharedIndexInformer(&replicas{0, watch.NewFake()}, &corev1.Pod{}, 0, cache.Indexers{}))
	if err := clientgo.ShareParts(wrapped); err != nil {
		t.Errorf("one of ours behind its typed wrapper: %v", err)
	}
}
