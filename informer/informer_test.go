package informer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestHandlersReceiveTheListThenTheChanges(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("shop", "b", "1")
		inf := r.configMapInformer()
		early := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(early)
		r.must(inf.Start(r.ctx))
		r.expect(early, "ADDED default/a >1 initial", "ADDED shop/b >1 initial", "SYNCED")

		r.set("default", "a", "2")
		r.set("default", "c", "1")
		r.delete("shop", "b")
		r.expect(early, "MODIFIED default/a 1>2", "ADDED default/c >1", "DELETED shop/b 1>1")

		late := &diary[*corev1.ConfigMap]{}
		reg := inf.AddHandler(late)
		r.must(reg.WaitForSync(r.ctx))
		r.expect(late, "ADDED default/a >2 initial", "ADDED default/c >1 initial", "SYNCED")

		r.must(reg.Remove(r.ctx))
		r.set("default", "a", "3")
		r.expect(late)
		r.expect(early, "MODIFIED default/a 2>3")
		r.holds(inf, "default/a=3", "default/c=1")
	})
}

func TestNoObjectsIsSyncedToo(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "SYNCED")
	})
}

func TestEveryRepresentationCarriesKindAndAPIVersion(t *testing.T) {
	t.Run("decoded", func(t *testing.T) { representations(t) })
	t.Run("compact", func(t *testing.T) { representations(t, informer.Compact()) })
}

func representations(t *testing.T, opts ...informer.Option) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		created, err := r.server.Create(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", Labels: map[string]string{"app": "web"}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test"}}},
			Spec:       corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		})
		r.must(err)
		typed, err := informer.New[*corev1.Pod](r.conn, opts...)
		r.must(err)
		dynamic, err := informer.New[*unstructured.Unstructured](r.conn, append(opts, informer.Resource("po"))...)
		r.must(err)
		metadata, err := informer.New[*metav1.PartialObjectMetadata](r.conn, append(opts, informer.Resource("pods"))...)
		r.must(err)
		full, err := informer.New[*corev1.Pod](r.conn, append(opts, informer.KeepManagedFields())...)
		r.must(err)
		for _, inf := range []informer.Managed{typed, dynamic, metadata, full} {
			r.stopAfter(inf)
			r.must(inf.Start(r.ctx))
		}
		r.must(err)
		check := func(when string) {
			t.Helper()
			synctest.Wait()
			p, _ := typed.Get("default", "p")
			if p == nil || p.Kind != "Pod" || p.APIVersion != "v1" || p.Spec.NodeName != "n1" || p.ManagedFields != nil {
				t.Errorf("%s the typed pod is %+v", when, p)
			}
			u, _ := dynamic.Get("default", "p")
			if node, _, _ := unstructured.NestedString(u.Object, "spec", "nodeName"); u.GetKind() != "Pod" || u.GetAPIVersion() != "v1" || node != "n1" || u.GetManagedFields() != nil {
				t.Errorf("%s the unstructured pod is %+v", when, u)
			}
			m, _ := metadata.Get("default", "p")
			if m == nil || m.Kind != "Pod" || m.APIVersion != "v1" || m.Labels["app"] != "web" || m.UID != created.GetUID() {
				t.Errorf("%s the pod's metadata is %+v", when, m)
			}
			if f, _ := full.Get("default", "p"); len(f.ManagedFields) == 0 {
				t.Errorf("%s managed fields were to be kept: %+v", when, f)
			}
		}
		check("listed,")
		p := created.(*corev1.Pod).DeepCopy()
		p.Status.Phase = corev1.PodRunning
		_, err = r.server.Update(p)
		r.must(err)
		check("watched,")
		if p, _ := typed.Get("default", "p"); p.Status.Phase != corev1.PodRunning {
			t.Errorf("the change was not seen: %+v", p.Status)
		}
	})
}

func forbidden(verb string) *apierrors.StatusError {
	return apierrors.NewForbidden(configMaps.GroupResource(), "", fmt.Errorf("User %q cannot %s resource %q in API group %q at the cluster scope", "nobody", verb, "configmaps", ""))
}

func TestForbidden(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		stop := r.server.Inject(fakeapi.On("watch", configMaps, fakeapi.StatusFault(forbidden("watch"))))
		inf := r.configMapInformer()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range inf.Events(r.ctx) {
				t.Errorf("told %s by a refused informer", line(e))
			}
		}()
		begun := time.Now()
		err := inf.Start(r.ctx)
		if !apierrors.IsForbidden(err) || time.Since(begun) > time.Second {
			t.Fatalf("start ended with %v after %v", err, time.Since(begun))
		}
		for _, part := range []string{"watch configmaps of cluster test", `User "nobody" cannot watch`, "grant the verbs list and watch on configmaps", "single namespace"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		<-ended // a loop over the events of a refused informer does not wait for ever
		if err := inf.WaitForSync(r.ctx); !apierrors.IsForbidden(err) {
			t.Errorf("waiting for sync gives %v", err)
		}
		stop()
		r.must(inf.Start(r.ctx)) // once granted, it can be started
	})
}

func TestUnknownResource(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf, err := informer.New[*unstructured.Unstructured](r.conn, informer.Resource("widgets.example.com"))
		r.must(err)
		err = inf.Start(r.within(time.Minute))
		if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "widgets.example.com") || !strings.Contains(err.Error(), "cluster test") {
			t.Errorf("start ended with %v", err)
		}
	})
}

func TestClusterScopedResourceInANamespace(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf, err := informer.New[*corev1.Node](r.conn, informer.InNamespace("default"))
		r.must(err)
		if err = inf.Start(r.ctx); err == nil || !strings.Contains(err.Error(), "not namespaced") {
			t.Errorf("start ended with %v", err)
		}
	})
}

func TestBadOptions(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for name, opt := range map[string]informer.Option{
			"label selector": informer.LabelSelector("a=(b"), "field selector": informer.FieldSelector("nonsense"),
			"Resource": informer.Resource(" "), "Retain": informer.Retain(-1), "PageSize": informer.PageSize(0),
		} {
			if _, err := informer.New[*corev1.Pod](r.conn, opt); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("a bad %s gives %v", name, err)
			}
		}
		if _, err := informer.New[*unstructured.Unstructured](r.conn); err == nil || !strings.Contains(err.Error(), "informer.Resource") {
			t.Errorf("an unstructured informer of nothing gives %v", err)
		}
	})
}

func TestUnreachableServerIsRetriedVisibly(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.server.SetDown(true)
		inf := r.configMapInformer()
		err := inf.Start(r.within(20 * time.Second))
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("start ended with %v", err)
		}
		runs := make(chan error)
		go func() { runs <- inf.Run(r.ctx) }()
		time.Sleep(time.Minute)
		s := inf.Status()
		if s.Phase != informer.Waiting || s.LastError == nil || s.Errors < 3 || s.Retry.Before(time.Now()) {
			t.Errorf("the status is %+v", s)
		}
		if s.Errors > 20 {
			t.Errorf("%d requests in a minute: that is no backoff", s.Errors)
		}
		if !strings.Contains(r.log.String(), "will try again") {
			t.Errorf("the log does not tell: %s", r.log)
		}
		r.server.SetDown(false)
		r.must(inf.WaitForSync(r.within(time.Minute)))
		r.holds(inf, "default/a=1")
		if s := inf.Status(); s.Phase != informer.Watching || !s.Synced {
			t.Errorf("the status is %+v", s)
		}
		r.must(inf.Stop(r.ctx))
		r.must(<-runs)
	})
}

func TestReconnectResumesWithoutAList(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "SYNCED")
		r.server.SetDown(true)
		r.server.AbortWatches(configMaps)
		r.set("default", "a", "2")
		r.set("default", "a", "3")
		time.Sleep(time.Minute)
		r.server.SetDown(false)
		time.Sleep(time.Minute)
		r.expect(d, "MODIFIED default/a 1>2", "MODIFIED default/a 2>3")
		if s := inf.Status(); s.Lists != 1 {
			t.Errorf("listed %d times", s.Lists)
		}
	})
}

func TestExpiredWatchListsAgain(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		r.set("default", "c", "1")
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "ADDED default/b >1 initial", "ADDED default/c >1 initial", "SYNCED")

		r.server.SetDown(true)
		r.server.AbortWatches(configMaps)
		r.set("default", "a", "2")
		r.delete("default", "b")
		r.delete("default", "c")
		r.set("default", "c", "again") // the same name, another object
		r.set("default", "d", "1")
		r.server.Compact()
		time.Sleep(time.Minute)
		r.server.SetDown(false)
		time.Sleep(time.Minute)
		r.expect(d,
			"DELETED default/b 1>1 tombstone",
			"MODIFIED default/a 1>2",
			"DELETED default/c 1>1 tombstone", "ADDED default/c >again",
			"ADDED default/d >1")
		if s := inf.Status(); s.Lists != 2 {
			t.Errorf("listed %d times", s.Lists)
		}
		if !strings.Contains(r.log.String(), "listed again") {
			t.Errorf("the log does not tell of the relist: %s", r.log)
		}
	})
}

func TestListsByPagesWhereWatchListIsRefused(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, func(r *rig) {
		for i := range 25 {
			r.set("default", fmt.Sprintf("cm-%02d", i), "1")
		}
		inf := r.configMapInformer(informer.PageSize(10))
		r.must(inf.Start(r.ctx))
		if n := r.server.Count("list", configMaps); n != 3 {
			t.Errorf("%d pages were asked for", n)
		}
		if n := len(inf.List(informer.Query{})); n != 25 {
			t.Errorf("%d objects", n)
		}
		r.set("default", "more", "1")
		synctest.Wait()
		if _, ok := inf.Get("default", "more"); !ok {
			t.Error("a change after the list was not seen")
		}
	})
}

func TestListsWhereTheBookmarkNeverComes(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.server.Inject(fakeapi.On("watch", configMaps, &fakeapi.Fault{NoInitialEventsEnd: true}))
		inf := r.configMapInformer()
		begun := time.Now()
		r.must(inf.Start(r.within(time.Minute)))
		if took := time.Since(begun); took < 5*time.Second || took > 30*time.Second {
			t.Errorf("gave up on the bookmark after %v", took)
		}
		r.holds(inf, "default/a=1")
		time.Sleep(10 * time.Minute)
		if n := r.server.Count("watch", configMaps); n > 10 {
			t.Errorf("%d watches in ten minutes", n)
		}
		r.set("default", "b", "1")
		r.must(inf.WaitFor(r.within(time.Minute), r.server.ResourceVersion()))
		r.holds(inf, "default/a=1", "default/b=1")
	})
}

func TestServerThatEndsEveryWatchAtOnce(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.server.Inject(fakeapi.On("watch", configMaps, &fakeapi.Fault{CutAfterEvents: -1}))
		inf := r.configMapInformer()
		r.must(inf.Start(r.within(time.Minute)))
		time.Sleep(5 * time.Minute)
		if n := r.server.Count("watch", configMaps); n > 60 {
			t.Errorf("%d watches in five minutes: that is no backoff", n)
		}
	})
}

func TestRetryAfter(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		busy := apierrors.NewTooManyRequests("busy", 17)
		r.server.Inject(fakeapi.Times(1, fakeapi.On("watch", configMaps, fakeapi.StatusFault(busy))))
		inf := r.configMapInformer()
		begun := time.Now()
		r.must(inf.Start(r.ctx))
		if took := time.Since(begun); took < 17*time.Second || took > 25*time.Second {
			t.Errorf("told to come back after 17s, came after %v", took)
		}
	})
}

func TestStopAndStartAgain(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		if err := inf.Start(r.ctx); !errors.Is(err, informer.ErrStarted) {
			t.Errorf("starting twice gives %v", err)
		}
		r.expect(d, "ADDED default/a >1 initial", "SYNCED")
		r.must(inf.Stop(r.ctx))
		r.must(inf.Stop(r.ctx))
		if s := inf.Status(); s.Phase != informer.Stopped || s.Objects != 1 {
			t.Errorf("stopped, the status is %+v", s)
		}
		r.set("default", "a", "2")
		r.expect(d)
		r.holds(inf, "default/a=1")

		r.server.ResetCounts()
		r.must(inf.Start(r.ctx))
		r.expect(d, "MODIFIED default/a 1>2")
		if n := r.server.Count("list", configMaps); n != 0 {
			t.Errorf("listed %d times to go on", n)
		}

		r.must(inf.Empty(r.ctx))
		r.expect(d, "DELETED default/a 2>2 tombstone")
		r.holds(inf)
		if s := inf.Status(); s.Synced || s.Objects != 0 || s.ResourceVersion != "" {
			t.Errorf("emptied, the status is %+v", s)
		}
		r.set("default", "b", "1")
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >2 initial", "ADDED default/b >1 initial")
		r.holds(inf, "default/a=2", "default/b=1")
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		ctx, cancel := context.WithCancel(r.ctx)
		done := make(chan error)
		go func() { done <- inf.Run(ctx) }()
		r.must(inf.WaitForSync(r.ctx))
		cancel()
		if err := <-done; err != nil {
			t.Errorf("a run that was ended says %v", err)
		}
	})
}

func TestResync(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		inf := r.configMapInformer()
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d, informer.Resync(10*time.Minute))
		quiet := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(quiet)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "ADDED default/b >1 initial", "SYNCED")
		r.set("default", "a", "2")
		time.Sleep(10*time.Minute + time.Second)
		r.expect(d, "MODIFIED default/a 1>2", "SYNC default/a 2>2", "SYNC default/b 1>1")
		time.Sleep(10 * time.Minute)
		r.expect(d, "SYNC default/a 2>2", "SYNC default/b 1>1")
		r.expect(quiet, "ADDED default/a >1 initial", "ADDED default/b >1 initial", "SYNCED", "MODIFIED default/a 1>2")
		if n := r.server.Count("list", configMaps); n != 0 {
			t.Errorf("a resync asked the server %d times", n)
		}
	})
}

func TestPanicInAHandler(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		d, calm := &diary[*corev1.ConfigMap]{}, &diary[*corev1.ConfigMap]{}
		reg := inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) {
			if e.Object != nil && e.Object.Name == "bad" {
				panic("cannot stand it")
			}
			d.Handle(e)
		}))
		inf.AddHandler(calm)
		r.must(inf.Start(r.ctx))
		r.set("default", "a", "1")
		r.set("default", "bad", "1")
		r.set("default", "b", "1")
		r.expect(d, "SYNCED", "ADDED default/a >1", "ADDED default/b >1")
		r.expect(calm, "SYNCED", "ADDED default/a >1", "ADDED default/bad >1", "ADDED default/b >1")
		if s := reg.Status(); s.Panics != 1 || s.LastPanic != "cannot stand it" || s.Delivered != 4 || s.Lag != 0 {
			t.Errorf("the handler's status is %+v", s)
		}
		if log := r.log.String(); !strings.Contains(log, "cannot stand it") || !strings.Contains(log, "TestPanicInAHandler") {
			t.Errorf("the log does not tell with a stack: %s", log)
		}
	})
}

func TestSlowHandlerDelaysOnlyItself(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		gate := make(chan struct{})
		slow, quick := &diary[*corev1.ConfigMap]{}, &diary[*corev1.ConfigMap]{}
		reg := inf.AddHandler(informer.HandlerFunc[*corev1.ConfigMap](func(e informer.Event[*corev1.ConfigMap]) { <-gate; slow.Handle(e) }))
		inf.AddHandler(quick)
		r.must(inf.Start(r.ctx))
		r.set("default", "a", "1")
		r.set("default", "a", "2")
		r.expect(quick, "SYNCED", "ADDED default/a >1", "MODIFIED default/a 1>2")
		if s := reg.Status(); s.Lag != 2 || s.Synced {
			t.Errorf("the slow handler's status is %+v", s)
		}
		if err := inf.Stop(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopping with a handler that does not return gives %v", err)
		}
		close(gate)
		r.must(inf.Stop(r.ctx))
		slow.read()
		r.must(inf.Start(r.ctx))
		r.expect(slow, "ADDED default/a >1", "MODIFIED default/a 1>2")
	})
}

func TestWaitForOwnWrite(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		r.must(inf.Start(r.ctx))
		for i := range 20 {
			value := fmt.Sprint(i)
			version := r.set("default", "a", value)
			r.must(inf.WaitFor(r.ctx, version))
			if cm, _ := inf.Get("default", "a"); cm.Data["v"] != value {
				t.Fatalf("wrote %s, read %s", value, cm.Data["v"])
			}
		}
		if err := inf.WaitFor(r.within(time.Second), "999999"); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "999999") {
			t.Errorf("waiting for the future gives %v", err)
		}
		if err := r.configMapInformer().WaitFor(r.within(time.Second), "1"); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "; the informer does not run") {
			t.Errorf("waiting without Start gives %v", err)
		}
		if err := inf.WaitFor(r.ctx, "soon"); !errors.Is(err, informer.ErrVersion) {
			t.Errorf("waiting for no version gives %v", err)
		}
		// A write elsewhere is learnt of by a bookmark.
		_, err := r.server.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "elsewhere"}})
		r.must(err)
		r.must(inf.WaitFor(r.within(2*time.Minute), r.server.ResourceVersion()))
	})
}

func TestQueries(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i, ns := range []string{"a", "a-b", "b"} {
			for j := range 3 {
				_, err := r.server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint(j), Labels: map[string]string{"n": fmt.Sprint(i + j)}}})
				r.must(err)
			}
		}
		inf := r.configMapInformer()
		r.must(inf.Start(r.ctx))
		list := func(q informer.Query) string { return strings.ReplaceAll(strings.Join(values(inf, q), " "), "=", "") }
		for _, c := range []struct {
			q    informer.Query
			want string
		}{
			{informer.Query{}, "a-b/0 a-b/1 a-b/2 a/0 a/1 a/2 b/0 b/1 b/2"},
			{informer.Query{Namespace: "a"}, "a/0 a/1 a/2"},
			{informer.Query{Namespace: "nowhere"}, ""},
			{informer.Query{Labels: labels.SelectorFromSet(labels.Set{"n": "2"})}, "a-b/1 a/2 b/0"},
			{informer.Query{Namespace: "a", Labels: labels.SelectorFromSet(labels.Set{"n": "2"})}, "a/2"},
			{informer.Query{Limit: 4}, "a-b/0 a-b/1 a-b/2 a/0"},
			{informer.Query{Limit: 4, After: "a/0"}, "a/1 a/2 b/0 b/1"},
			{informer.Query{Namespace: "a", After: "a/1"}, "a/2"},
		} {
			if got := list(c.q); got != c.want {
				t.Errorf("%+v lists %q, not %q", c.q, got, c.want)
			}
		}
		view := inf.View()
		r.set("a", "0", "changed")
		r.delete("b", "2")
		synctest.Wait()
		if got := len(view.List(informer.Query{})); got != 9 || view.Len() != 9 {
			t.Errorf("a view lost objects: %d", got)
		}
		if cm, ok := view.Get("a", "0"); !ok || cm.Data["v"] != "" {
			t.Errorf("a view changed: %v", cm)
		}
		view.Release()
		if got := list(informer.Query{Namespace: "b"}); got != "b/0 b/1" {
			t.Errorf("the newest state is %q", got)
		}
	})
}

func TestScope(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for _, ns := range []string{"default", "shop"} {
			_, err := r.server.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a", Labels: map[string]string{"app": "web"}}})
			r.must(err)
			r.set(ns, "b", "1")
		}
		for want, opts := range map[string][]informer.Option{
			"[shop/a= shop/b=1]":     {informer.InNamespace("shop")},
			"[default/a= shop/a=]":   {informer.LabelSelector("app=web")},
			"[default/b=1 shop/b=1]": {informer.FieldSelector("metadata.name=b")},
			"[shop/a=]":              {informer.LabelSelector("app"), informer.InNamespace("shop")},
		} {
			inf := r.configMapInformer(opts...)
			r.must(inf.Start(r.ctx))
			if got := fmt.Sprint(values(inf, informer.Query{})); got != want {
				t.Errorf("the scope holds %s, not %s", got, want)
			}
		}
	})
}

func TestEventsIterator(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		inf := r.configMapInformer()
		ctx, cancel := context.WithCancel(r.ctx)
		d := &diary[*corev1.ConfigMap]{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for e := range inf.Events(ctx) {
				d.Handle(e)
			}
		}()
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "SYNCED")
		r.set("default", "a", "2")
		r.expect(d, "MODIFIED default/a 1>2")
		cancel()
		<-done
		for e := range inf.Events(r.ctx) {
			if e.Type == informer.Synced {
				break // leaving the loop lets go of everything
			}
		}
		if s := inf.Status(); s.Phase != informer.Watching {
			t.Errorf("the informer is %s", s.Phase)
		}
	})
}

func TestEventsSince(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer(informer.Retain(3))
		r.must(inf.Start(r.ctx))
		var versions []string
		for i := range 6 {
			versions = append(versions, r.set("default", "a", fmt.Sprint(i)))
			synctest.Wait()
		}
		since := func(version string) (told []string) {
			events, err := inf.EventsSince(r.ctx, version)
			if err != nil {
				return []string{err.Error()}
			}
			for e := range events {
				if told = append(told, line(e)); e.ResourceVersion() == versions[5] {
					break
				}
			}
			return told
		}
		if got := since(versions[2]); strings.Join(got, ",") != "MODIFIED default/a 2>3,MODIFIED default/a 3>4,MODIFIED default/a 4>5" {
			t.Errorf("after the third comes %q", got)
		}
		if _, err := inf.EventsSince(r.ctx, versions[0]); !errors.Is(err, informer.ErrExpired) || !strings.Contains(err.Error(), versions[0]) {
			t.Errorf("resuming before the window gives %v", err)
		}
		if _, err := inf.EventsSince(r.ctx, "999999"); !errors.Is(err, informer.ErrExpired) {
			t.Errorf("resuming in the future gives %v", err)
		}
	})
}

func TestFromAVersion(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "old", "1")
		version := r.set("default", "a", "1")
		r.set("default", "a", "2")
		r.delete("default", "old")
		inf := r.configMapInformer(informer.From(version))
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		go func() { _ = inf.Run(r.ctx) }()
		r.expect(d, "MODIFIED default/a >2", "DELETED default/old >1")
		if n := r.server.Count("list", configMaps); n != 0 {
			t.Errorf("listed %d times", n)
		}
	})
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		version := r.set("default", "a", "1")
		r.set("default", "a", "2")
		r.server.Compact()
		inf := r.configMapInformer(informer.From(version))
		r.must(inf.Start(r.within(time.Minute)))
		r.holds(inf, "default/a=2")
	})
}

func TestFactoryShares(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		f := informer.NewFactory(r.conn)
		r.stopAfter(f)
		one, err := informer.For[*corev1.ConfigMap](f)
		r.must(err)
		two, err := informer.For[*corev1.ConfigMap](f)
		r.must(err)
		other, err := informer.For[*corev1.ConfigMap](f, informer.InNamespace("shop"))
		r.must(err)
		if one != two || one == other {
			t.Errorf("shared: %v, apart: %v", one == two, one != other)
		}
		r.must(f.Start(r.ctx))
		r.holds(one, "default/a=1")
		secrets, err := informer.For[*corev1.Secret](f)
		r.must(err)
		r.must(f.Start(r.ctx)) // starts the new one only
		r.must(f.WaitForSync(r.ctx))
		synctest.Wait() // a list is complete before the watch is noted in the status
		if len(f.Informers()) != 3 || secrets.Status().Phase != informer.Watching {
			t.Errorf("%d informers, secrets %s", len(f.Informers()), secrets.Status().Phase)
		}
		r.must(one.Stop(r.ctx)) // one alone
		if secrets.Status().Phase != informer.Watching {
			t.Error("stopping one informer stopped another")
		}
		r.must(f.Empty(r.ctx))
		r.holds(one)
		r.must(f.Start(r.ctx))
		r.holds(one, "default/a=1")
		r.must(f.Stop(r.ctx))
	})
}
