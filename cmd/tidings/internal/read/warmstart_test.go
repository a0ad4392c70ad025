package read_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

var leases = coordinationv1.SchemeGroupVersion.WithResource("leases")

// restarts runs tests in which a mirror with a history is started, perhaps several times. It
// retains so many events.
func restarts(t *testing.T, retain int, test func(t *testing.T, c *fakeapi.Cluster, start func() *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, err := history.Open("history", history.Options{InMemory: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
		c := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(c)
		defer stop()
		test(t, c, func() *rig {
			recording := history.NewRecording(store, history.RecordingOptions{Thin: map[string]time.Duration{"leases.coordination.k8s.io": time.Minute}})
			r := newRig(t, c, config, mirror.Options{Retain: retain, Journal: recording})
			r.reader = read.New(read.Options{History: recording})
			return r
		})
	})
}

// whole lists the JSON of a resource.
func (r *rig) whole(resource string) map[string]string {
	r.Helper()
	state, err := r.stateOf(r.query(resource), read.Any, 0)
	r.must(err)
	defer state.Release()
	found, _ := state.List(r.ctx, "", 0)
	out := map[string]string{}
	for _, o := range found {
		out[o.GetName()] = string(o.JSON())
	}
	return out
}

// A mirror that is started again on its history lists nothing, and answers with the very
// bytes of the API server.
func TestAMirrorStartsFromItsHistory(t *testing.T) {
	restarts(t, 10, func(t *testing.T, c *fakeapi.Cluster, start func() *rig) {
		managed := func(manager string) []metav1.ManagedFieldsEntry {
			return []metav1.ManagedFieldsEntry{{Manager: manager, Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)}}
		}
		put := func(name, value string) {
			t.Helper()
			if _, err := c.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ManagedFields: managed("m" + value)}, Data: map[string]string{"v": value}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		renew := func(holder string) {
			t.Helper()
			if _, err := c.Put(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lease", ManagedFields: managed(holder)}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		put("same", "1")
		put("changed", "1")
		put("gone", "1")
		renew("first")
		r := start()
		r.whole("configmaps")
		r.whole("leases")
		put("changed", "2")
		renew("second") // is thinned
		r.close()
		for run := range 3 {
			put("changed", fmt.Sprint(3+run))
			put(fmt.Sprint("new", run), "1")
			if run == 1 {
				if err := c.Delete(configMaps, "default", "gone"); err != nil {
					t.Fatal(err)
				}
			}
			c.ResetCounts()
			r := start()
			for resource, gvr := range map[string]schema.GroupVersionResource{"configmaps": configMaps, "leases": leases} {
				r.whole(resource)
				if n := c.Count("list", gvr); n != 0 {
					t.Errorf("run %d: %d lists of %s", run, n, resource)
				}
				synctest.Wait()
				got := r.whole(resource)
				fresh := newRig(r.TB, c, r.config, mirror.Options{})
				want := fresh.whole(resource)
				fresh.close()
				for name := range want {
					if got[name] != want[name] || !strings.Contains(want[name], "managedFields") {
						t.Errorf("run %d: %s is\n%s, not\n%s", run, name, got[name], want[name])
					}
				}
				if len(got) != len(want) {
					t.Errorf("run %d: %d %s, not %d", run, len(got), resource, len(want))
				}
			}
			r.close()
		}
	})
}

// What a client has from before the restart is good after it: a version to watch from, and
// a moment.
func TestVersionsOutliveARestart(t *testing.T) {
	restarts(t, 10, func(t *testing.T, c *fakeapi.Cluster, start func() *rig) {
		r := start()
		q := r.query("configmaps")
		r.list(q)
		var want []string
		begin := r.set("default", "begin", "1")
		synctest.Wait()
		for i := range 20 { // more than is retained
			want = append(want, "@"+r.set("default", "x", fmt.Sprint("before", i)))
			synctest.Wait()
		}
		before := time.Now()
		time.Sleep(time.Second)
		r.close()
		time.Sleep(time.Hour)
		want = append(want, "@"+r.set("default", "x", "meanwhile"))
		time.Sleep(time.Hour)
		r = start()
		defer r.close()
		q = r.query("configmaps")
		r.list(q)
		synctest.Wait()
		want = append(want, "@"+r.set("default", "x", "after"))
		time.Sleep(time.Second) // the history has it

		bound, err := r.bind(q, read.Watch)
		r.must(err)
		ctx, cancel := context.WithCancel(r.ctx)
		defer cancel()
		events, err := r.reader.Changes(ctx, bound, read.Exact, version(begin))
		r.must(err)
		var got []string
		for e, err := range events {
			r.must(err)
			if e.Object != nil {
				got = append(got, "@"+e.Object.GetResourceVersion())
			}
			if len(got) == len(want) {
				break
			}
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("the watch from %s delivers\n%s, not\n%s", begin, got, want)
		}

		// A moment while the mirror was stopped is in a gap, in which nothing was missed.
		for _, at := range []struct {
			time time.Time
			gap  bool
		}{{before, false}, {before.Add(90 * time.Minute), true}, {time.Now(), false}} {
			ask := q
			ask.Namespace, ask.Name, ask.At = "default", "x", &read.Moment{Time: at.time}
			bound, err := r.bind(ask, read.Get)
			r.must(err)
			_, past, err := r.reader.GetPast(bound)
			r.must(err)
			if (past.Gap != nil) != at.gap || at.gap && !past.Gap.Late {
				t.Errorf("at %s the gap is %+v", at.time, past.Gap)
			}
		}
	})
}
