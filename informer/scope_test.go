package informer_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestSeveralNamespaces(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for _, ns := range []string{"a", "a-b", "b", "c"} {
			r.set(ns, "x", "1")
		}
		inf := r.configMapInformer(informer.InNamespace("b", "a"))
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		synctest.Wait()
		if told := d.read(); len(told) != 3 || told[2] != "SYNCED" {
			t.Errorf("told %q", told)
		}
		r.holds(inf, "a/x=1", "b/x=1")
		r.set("c", "x", "2")
		r.set("b", "x", "2")
		r.delete("a", "x")
		r.holds(inf, "b/x=2")
		synctest.Wait()
		d.read()

		// A relist of one namespace says nothing of the other.
		r.server.SetDown(true)
		r.server.AbortWatches(configMaps)
		r.set("a", "y", "1")
		r.delete("b", "x")
		r.server.Compact()
		r.server.SetDown(false)
		time.Sleep(2 * time.Minute)
		r.holds(inf, "a/y=1")
		r.must(inf.WaitFor(r.within(3*time.Minute), r.server.ResourceVersion()))

		// Stopped and started, it goes on in each namespace where it was.
		r.must(inf.Stop(r.ctx))
		r.set("a", "y", "2")
		r.set("b", "z", "1")
		lists := inf.Status().Lists
		r.must(inf.Start(r.ctx))
		r.holds(inf, "a/y=2", "b/z=1")
		if now := inf.Status().Lists; now != 0 {
			t.Errorf("listed %d times after %d", now, lists)
		}
	})
}

func TestOneOfSeveralNamespacesForbidden(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("a", "x", "1")
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Verb == "watch" && req.Namespace == "b" {
				return fakeapi.StatusFault(forbidden("watch"))
			}
			return nil
		})
		inf := r.configMapInformer(informer.InNamespace("a", "b"))
		err := inf.Start(r.ctx)
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "namespace b") {
			t.Errorf("start ended with %v", err)
		}
		if _, err := informer.New[*corev1.ConfigMap](r.conn, informer.InNamespace("a", "")); err == nil {
			t.Error("all namespaces and one of them were taken together")
		}
	})
}

func TestFilterAndTransform(t *testing.T) {
	t.Run("decoded", func(t *testing.T) { refined(t) })
	t.Run("compact", func(t *testing.T) { refined(t, informer.Compact()) })
}

func refined(t *testing.T, opts ...informer.Option) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "no")
		inf := r.configMapInformer(append(opts,
			informer.Transform(func(cm *corev1.ConfigMap) (*corev1.ConfigMap, error) {
				if cm.Data["v"] == "bad" {
					return nil, errors.New("cannot be transformed")
				}
				cm.Data["v"] = strings.ToUpper(cm.Data["v"])
				return cm, nil
			}),
			informer.Filter(func(cm *corev1.ConfigMap) bool { return cm.Data["v"] != "NO" }))...)
		d := &diary[*corev1.ConfigMap]{}
		inf.AddHandler(d)
		r.must(inf.Start(r.ctx))
		r.expect(d, "ADDED default/a >1 initial", "SYNCED")
		r.set("default", "b", "yes")
		r.expect(d, "ADDED default/b >YES")
		r.set("default", "b", "no")
		r.expect(d, "DELETED default/b YES>NO")
		r.set("default", "b", "nO")
		r.delete("default", "b")
		r.expect(d)
		r.holds(inf, "default/a=1")

		r.set("default", "a", "bad")
		synctest.Wait()
		if s := inf.Status(); s.Phase != informer.Waiting || !strings.Contains(fmt.Sprint(s.LastError), "transform default/a: cannot be transformed") {
			t.Errorf("a failing transform shows as %+v", s)
		}
		r.set("default", "a", "good")
		time.Sleep(2 * time.Minute)
		r.expect(d, "MODIFIED default/a 1>GOOD")
	})
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		_, err := informer.New[*corev1.Pod](r.conn, informer.Filter(func(*corev1.ConfigMap) bool { return true }))
		if err == nil || !strings.Contains(err.Error(), "Filter") {
			t.Errorf("a filter of another type gives %v", err)
		}
	})
}
