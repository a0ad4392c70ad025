package informer_test

import (
	"reflect"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// A store of encodings reads like one of objects, through every way of reading.
func TestCompactReadsTheSame(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		pods := samplepods.Clone(300, 3)
		for i := range pods {
			pods[i].ResourceVersion = ""
			_, err := r.server.Create(&pods[i])
			r.must(err)
		}
		decoded, err := informer.New[*corev1.Pod](r.conn)
		r.must(err)
		compact, err := informer.New[*corev1.Pod](r.conn, informer.Compact())
		r.must(err)
		var told []informer.Event[*corev1.Pod]
		compact.AddHandler(informer.HandlerFunc[*corev1.Pod](func(e informer.Event[*corev1.Pod]) { told = append(told, e) }))
		for _, inf := range []informer.Managed{decoded, compact} {
			r.stopAfter(inf)
			r.must(inf.Start(r.ctx))
		}
		synctest.Wait()
		want := decoded.List(informer.Query{})
		if got := compact.List(informer.Query{}); len(got) != len(pods) || !reflect.DeepEqual(got, want) {
			t.Errorf("%d pods are listed, not the %d there are", len(got), len(want))
		}
		for i, pod := range want {
			if got, ok := compact.Get(pod.Namespace, pod.Name); !ok || !reflect.DeepEqual(got, pod) {
				t.Fatalf("%s is read as\n%+v, not\n%+v", pod.Name, got, pod)
			}
			if e := told[i]; e.Type != informer.Added || !e.InInitialList || !reflect.DeepEqual(e.Object, pod) || e.Old != nil {
				t.Fatalf("%s is delivered as %s", pod.Name, e.Type)
			}
		}
		if e := told[len(want)]; e.Type != informer.Synced || e.Object != nil {
			t.Errorf("the end of the list is delivered as %s", e.Type)
		}
		if _, ok := compact.Get("nowhere", "nothing"); ok {
			t.Error("there is a pod that was never made")
		}

		before, _ := compact.Get(want[0].Namespace, want[0].Name)
		changed := before.DeepCopy()
		changed.Status.Phase = corev1.PodFailed
		_, err = r.server.Update(changed)
		r.must(err)
		synctest.Wait()
		e := told[len(told)-1]
		if e.Type != informer.Updated || !reflect.DeepEqual(e.Old, before) || e.Object.Status.Phase != corev1.PodFailed {
			t.Errorf("a change is delivered as %s of %s", e.Type, e.Object.Name)
		}
		if s := compact.Status(); s.Bytes == 0 || s.Bytes > int64(len(pods)*1024) {
			t.Errorf("%d pods take %d bytes", s.Objects, s.Bytes)
		}
	})
}

// What somebody holds is not decoded again for the next reader; what nobody
// holds is not kept.
func TestCompactKeepsWhatIsHeld(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer(informer.Compact())
		r.must(inf.Start(r.ctx))
		first, _ := inf.Get("default", "a")
		again, _ := inf.Get("default", "a")
		if first != again {
			t.Error("an object that is held was decoded again")
		}
		kept := weak.Make(first)
		runtime.KeepAlive(again)
		runtime.GC()
		if kept.Value() != nil {
			t.Error("an object that nobody holds is kept")
		}
	})
}
