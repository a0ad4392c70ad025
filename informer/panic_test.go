package informer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// panicAt panics for a config map that holds the value "bad".
func panicAt(cm *corev1.ConfigMap) {
	if cm.Data["v"] == "bad" {
		panic("a config map is bad")
	}
}

// everyStore runs a test with each kind of store.
func everyStore(t *testing.T, test func(r *rig, opts ...informer.Option)) {
	for name, opts := range map[string][]informer.Option{"decoded": nil, "compact": {informer.Compact()}, "detecting": {informer.DetectMutations(nil)}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) { test(r, opts...) })
		})
	}
}

// expectPanic checks what an informer reports of the last panic.
func (r *rig) expectPanic(status informer.Status, panics uint64, function, key string) {
	r.Helper()
	last := status.LastPanic
	if status.Panics != panics || last == nil || last.Function != function || last.Key != key || !strings.Contains(string(last.Stack), "panicAt") {
		r.Errorf("the status has %d panics, not %d; the last is %v", status.Panics, panics, last)
	}
	for _, part := range []string{"a function panicked", "cluster=test", "resource=configmaps", "key=" + key, "a config map is bad", "panicAt"} {
		if !strings.Contains(r.log.String(), part) {
			r.Errorf("the log lacks %q:\n%s", part, r.log)
		}
	}
}

// A panic of a Transform or a Filter fails the list or the watch, which is retried.
// The store keeps its last state meanwhile.
func TestPanicsOfTransformAndFilter(t *testing.T) {
	for function, opt := range map[string]informer.Option{
		"Transform": informer.Transform(func(cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
			panicAt(cm)
			return cm, nil
		}),
		"Filter": informer.Filter(func(cm *corev1.ConfigMap) bool {
			panicAt(cm)
			return true
		}),
	} {
		t.Run(function, func(t *testing.T) {
			everyStore(t, func(r *rig, opts ...informer.Option) {
				r.set("default", "a", "1")
				r.set("default", "b", "bad")
				inf, d := r.configMapInformer(append(opts, opt)...), &diary[*corev1.ConfigMap]{}
				inf.AddHandler(d)
				err := inf.Start(r.within(time.Second))
				panicked := (*informer.PanicError)(nil)
				if !errors.As(err, &panicked) || panicked.Function != function || panicked.Key != "default/b" {
					t.Fatalf("started with an object at which the %s panics: %v", function, err)
				}
				if want := function + " panicked at default/b: a config map is bad"; !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "configmaps of cluster test") {
					t.Errorf("%q does not say %q", err, want)
				}
				r.expectPanic(inf.Status(), inf.Status().Panics, function, "default/b")
				r.holds(inf)

				r.set("default", "b", "2")
				r.must(inf.Start(r.ctx))
				r.expect(d, "ADDED default/a >1 initial", "ADDED default/b >2 initial", "SYNCED")
				before := inf.Status().Panics

				r.set("default", "a", "bad") // in the watch
				r.set("default", "c", "1")
				r.holds(inf, "default/a=1", "default/b=2")
				r.expectPanic(inf.Status(), before+1, function, "default/a")
				r.set("default", "a", "3")
				time.Sleep(time.Minute) // of the bubble: until the retry
				r.expect(d, "MODIFIED default/a 1>3", "ADDED default/c >1")
				r.set("default", "a", "4") // the new watch works
				r.holds(inf, "default/a=4", "default/b=2", "default/c=1")
			})
		})
	}
}

// A panic of an index function leaves its object out of that index, and of nothing
// else.
func TestPanicsOfIndexFunctions(t *testing.T) {
	byValue := func(values []string, cm *corev1.ConfigMap) []string {
		values = append(values, "any")
		panicAt(cm)
		return append(values, cm.Data["v"])
	}
	everyStore(t, func(r *rig, opts ...informer.Option) {
		inf, d := r.configMapInformer(opts...), &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		first, err := inf.AddIndex("first", byValue)
		r.must(err)
		r.set("default", "a", "1")
		r.set("default", "b", "bad")
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "ADDED default/b >bad initial", "SYNCED")
		r.expectPanic(inf.Status(), 1, `index "first"`, "default/b")

		time.Sleep(time.Minute) // so that the next panic is logged
		later, err := inf.AddIndex("later", byValue)
		r.must(err)
		r.expectPanic(inf.Status(), 2, `index "later"`, "default/b")

		indexed := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for _, in := range []*informer.Index[*corev1.ConfigMap]{first, later} {
				var got []string
				for _, cm := range in.Get("any") {
					got = append(got, informer.Key(cm)+"="+cm.Data["v"])
				}
				if !slices.Equal(got, want) {
					r.Errorf("indexed: %q, not %q", got, want)
				}
			}
		}
		indexed("default/a=1")
		r.set("default", "a", "bad")
		r.set("default", "b", "2")
		indexed("default/b=2")
		if values := first.Values(); !slices.Equal(values, []string{"2", "any"}) {
			r.Errorf("the index has the values %q", values)
		}
		r.delete("default", "a")
		r.set("default", "a", "3")
		indexed("default/a=3", "default/b=2")
		r.expect(d, "MODIFIED default/a 1>bad", "MODIFIED default/b bad>2", "DELETED default/a bad>bad", "ADDED default/a >3")
		r.set("default", "a", "bad")
		r.holds(inf, "default/a=bad", "default/b=2")
		r.must(inf.Empty(r.ctx)) // the slots of the panics are gone with it
		r.set("default", "a", "4")
		r.must(inf.Start(r.ctx))
		indexed("default/a=4", "default/b=2")
		if panics := inf.Status().Panics; panics != 6 {
			r.Errorf("%d panics are counted for three objects in two indexes", panics)
		}
	})
}

// An index function that is not pure may panic at an object that it has returned
// values for. The index must not keep them.
func TestPanicOfImpureIndexFunction(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		armed := false
		inf := r.configMapInformer()
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		r.must(inf.Start(r.ctx))
		index, err := inf.AddIndex("value", func(values []string, cm *corev1.ConfigMap) []string {
			if armed && cm.Data["v"] == "1" {
				panic("armed")
			}
			return append(values, cm.Data["v"])
		})
		r.must(err)
		synctest.Wait()
		armed = true
		r.set("default", "a", "2")
		r.delete("default", "b")
		r.holds(inf, "default/a=2")
		if values := index.Values(); !slices.Equal(values, []string{"2"}) {
			r.Errorf("the index has the values %q", values)
		}
	})
}

func TestIndexNamesAreTakenOnce(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		inf := r.configMapInformer()
		none := func(values []string, _ *corev1.ConfigMap) []string { return values }
		_, err := inf.AddIndex("color", none)
		r.must(err)
		if _, err = inf.AddIndex("color", none); err == nil || err.Error() != `configmaps of cluster test: index "color" exists already` {
			t.Errorf("the error is %v", err)
		}
	})
}
