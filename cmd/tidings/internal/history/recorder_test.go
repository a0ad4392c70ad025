package history_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// rig records the ConfigMaps of an API server in memory.
type rig struct {
	*testing.T
	server *fakeapi.Cluster
	conn   *cluster.Cluster
	store  *history.Store
	of     history.Resource
	opts   history.RecordOptions
	stop   func()
}

// inBubble runs a test whose time passes only while all goroutines wait.
func inBubble(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, server: fakeapi.New(fakeapi.Options{}), of: history.Resource{Cluster: "test", ClusterUID: "1", Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}}
		config, stop := fakeapi.InProcess(r.server)
		defer stop()
		var err error
		r.conn, err = cluster.New("test", config)
		r.must(err)
		defer r.conn.Close()
		r.store, err = history.Open("history", history.Options{InMemory: true, Logger: slog.New(slog.DiscardHandler)})
		r.must(err)
		defer func() { r.must(r.store.Close()) }()
		test(r)
		if r.stop != nil {
			r.stop()
		}
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// start starts an informer and records it until r.stop is called.
func (r *rig) start() {
	r.Helper()
	inf, err := informer.New[*codec.Raw](r.conn, informer.Resource("configmaps"), informer.Compact(), informer.Logger(slog.New(slog.DiscardHandler)))
	r.must(err)
	r.opts.Current = func() bool { return inf.Status().Phase == informer.Watching }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	events, unsubscribe := history.Subscribe(ctx, inf)
	go func() { done <- r.store.Record(ctx, r.of, events, r.opts) }()
	r.must(inf.Start(ctx))
	synctest.Wait()
	r.stop = func() {
		r.Helper()
		r.stop = nil
		cancel()
		r.must(<-done)
		unsubscribe()
		r.must(inf.Stop(context.Background()))
	}
}

func (r *rig) set(name, value string) {
	r.Helper()
	_, err := r.server.Put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, Time: &metav1.Time{Time: time.Now()}, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)},
		}},
		Data: map[string]string{"value": value},
	})
	r.must(err)
	synctest.Wait()
}

// at describes the state at a time: name=value …
func (r *rig) at(at time.Time) (objects string, gap *history.Gap) {
	r.Helper()
	state, err := r.store.Find(r.of).At(at)
	r.must(err)
	defer state.Close()
	var out []string
	for v, err := range state.All("default", "") {
		r.must(err)
		_, rest, _ := strings.Cut(string(v.Object), `"value":"`)
		value, _, _ := strings.Cut(rest, `"`)
		out = append(out, strings.TrimPrefix(v.Key, "default/")+"="+value)
		if strings.Contains(string(v.Object), "managedFields") {
			r.Errorf("%s has managedFields: %s", v.Key, v.Object)
		}
	}
	return strings.Join(out, " "), state.Gap
}

func (r *rig) wantAt(at time.Time, want, gap string) {
	r.Helper()
	got, in := r.at(at)
	if got != want {
		r.Errorf("at %s there is %q, not %q", at, got, want)
	}
	if (in == nil) != (gap == "") || in != nil && !strings.Contains(in.Reason, gap) {
		r.Errorf("at %s the gap is %+v, not %q", at, in, gap)
	}
}

func TestEachMomentOfAnInformerIsRecorded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set("a", "1")
		r.start()
		begin := time.Now()
		time.Sleep(time.Second)
		r.set("b", "1")
		r.set("a", "2")
		second := time.Now()
		time.Sleep(time.Second)
		r.must(r.server.Delete(configMaps, "default", "a"))
		synctest.Wait()
		third := time.Now()
		time.Sleep(time.Second)

		r.wantAt(begin, "a=1", "")
		r.wantAt(second.Add(-1), "a=1", "")
		r.wantAt(second, "a=2 b=1", "")
		r.wantAt(third, "b=1", "")
		r.wantAt(time.Now(), "b=1", "")
		if _, err := r.store.Find(r.of).At(begin.Add(-1)); !errors.As(err, new(*history.BeginError)) {
			t.Errorf("the time before the history can be read: %v", err)
		}

		s, err := r.store.Find(r.of).At(begin)
		r.must(err)
		defer s.Close()
		log := s.ChangesOf(s.Cursor(), "default/a")
		var got []string
		for c, err := range log.Read(t.Context(), time.Now()) {
			r.must(err)
			got = append(got, fmt.Sprint(c.Type, " ", c.Time.Sub(begin), " ", string(c.Writers)))
		}
		if want := `[MODIFIED 1s [{"manager":"kubectl","operation":"Update","time":"` + second.UTC().Format(time.RFC3339) + `"}] DELETED 2s ]`; fmt.Sprint(got) != want {
			t.Errorf("the timeline is\n%s, not\n%s", got, want)
		}
		if _, seen := r.store.Find(r.of).Seen(); log.Reached() != seen {
			t.Errorf("the timeline reaches %d, not %d", log.Reached(), seen)
		}
	})
}

// What happens while nothing is recorded is found by the next list, and the time between
// is a gap.
func TestAStopIsAGap(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set("a", "1")
		r.set("b", "1")
		r.set("c", "1")
		r.start()
		time.Sleep(time.Minute)
		r.stop()
		stopped := time.Now()
		time.Sleep(time.Second)
		r.wantAt(time.Now(), "a=1 b=1 c=1", "nothing has been recorded since")
		r.set("a", "2")
		r.must(r.server.Delete(configMaps, "default", "b"))
		r.set("d", "1")
		time.Sleep(time.Minute)
		r.start()
		again := time.Now()
		time.Sleep(time.Second)
		r.wantAt(stopped, "a=1 b=1 c=1", "")
		r.wantAt(again.Add(-time.Second), "a=1 b=1 c=1", "was stopped")
		r.wantAt(again, "a=2 c=1 d=1", "")
		gaps := r.store.Find(r.of).Gaps(time.Time{}, time.Now().Add(time.Hour))
		if len(gaps) != 1 || gaps[0].From.Before(stopped.Add(-seen)) || gaps[0].From.After(stopped) || !gaps[0].To.Equal(again) {
			t.Errorf("the gaps are %+v, not one from %s to %s", gaps, stopped, again)
		}
		if n := r.store.Find(r.of).Stats().Versions; n != 3+3 {
			t.Errorf("%d versions were written; an object that did not change is not written again", n)
		}
	})
}

const seen = 10 * time.Second

// A relist may hide changes.
func TestARelistIsAGap(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set("a", "1")
		r.set("b", "1")
		r.start()
		time.Sleep(time.Minute + 5*time.Second) // between two records of the progress, at a minute
		r.server.SetDown(true)
		r.server.CloseWatches(configMaps)
		before := time.Now()
		time.Sleep(10 * time.Second)
		r.set("a", "2")
		r.set("a", "3")
		r.must(r.server.Delete(configMaps, "default", "b"))
		r.server.Compact()
		r.server.SetDown(false)
		time.Sleep(2 * time.Minute)
		r.wantAt(before.Add(-5*time.Second-1), "a=1 b=1", "")
		r.wantAt(before.Add(5*time.Second), "a=1 b=1", "listed again")
		r.wantAt(time.Now(), "a=3", "")
	})
}

// Of an object that changes all the time, only some versions are kept, and always the
// last one.
func TestThinning(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.opts.Thin = time.Minute
		r.start()
		for i := range 100 {
			r.set("a", fmt.Sprint(i))
			time.Sleep(time.Second)
		}
		if n := r.store.Find(r.of).Stats().Versions; n > 4 {
			t.Errorf("%d versions were written, not one a minute", n)
		}
		time.Sleep(2 * time.Minute)
		r.wantAt(time.Now(), "a=99", "")
	})
}

// A thinned version that is written late is older than what has been recorded since. It
// must not look as if versions had gone back.
func TestThinnedVersionsAreNoNewEpoch(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.opts.Thin = time.Minute
		r.start()
		r.set("a", "1")
		r.set("a", "2") // waits for its time
		r.set("b", "1")
		newest := object.Version(r.server.ResourceVersion())
		time.Sleep(2 * time.Minute)
		r.wantAt(time.Now(), "a=2 b=1", "")
		series := r.store.Find(r.of)
		if _, seen := series.Seen(); seen < newest {
			t.Errorf("the history reaches up to %d, not %d", seen, newest)
		}
		state, err := series.AtVersion(newest)
		r.must(err)
		r.must(state.Close())
	})
}

// All changes of a series have the versions before, as those after a state have.
func TestChangesHaveTheVersionBefore(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set("a", "1")
		r.start()
		time.Sleep(time.Second)
		r.set("a", "2")
		time.Sleep(time.Second)
		before := ""
		for c, err := range r.store.Find(r.of).Changes("", func(string) bool { return true }).Read(t.Context(), time.Time{}) {
			r.must(err)
			if before = ""; c.Before != nil {
				before = string(c.Before.Object)
			}
		}
		if !strings.Contains(before, `"value":"1"`) {
			t.Errorf("the version before the last change is %q", before)
		}
	})
}

// The history of a resource of which nothing exists begins all the same.
func TestNothingIsRecorded(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		time.Sleep(time.Second)
		empty := time.Now()
		r.wantAt(empty, "", "")
		time.Sleep(time.Second)
		r.set("a", "1")
		version := object.Version(r.server.ResourceVersion())
		r.set("b", "1") // in one write
		time.Sleep(time.Second)
		r.wantAt(empty, "", "")
		state, err := r.store.Find(r.of).AtVersion(version)
		r.must(err)
		defer state.Close()
		for name, want := range map[string]bool{"default/a": true, "default/b": false} {
			if _, got, err := state.Get(name); err != nil || got != want {
				t.Errorf("%s exists at %d: %v, %v", name, version, got, err)
			}
		}
	})
}

// A thinned version is not taken for that of an object of the same name that was created
// later.
func TestAThinnedObjectIsReplaced(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.opts.Thin = time.Minute
		r.set("a", "1")
		r.start()
		time.Sleep(time.Second)
		r.set("a", "2")
		r.must(r.server.Delete(configMaps, "default", "a"))
		r.set("a", "3")
		time.Sleep(time.Second)
		r.stop()
		_, err := r.store.Find(r.of).Newest(func(v history.Version, json []byte) error {
			if !strings.Contains(string(json), `"value":"3"`) {
				t.Errorf("the newest version is %s", json)
			}
			return nil
		})
		r.must(err)
	})
}

// A cluster that is restored from a backup has versions again that it had before. A time
// means the state then, a version the newer one, also if the restored state of a resource
// is the one that the history ends with.
func TestARestoredClusterIsANewEpoch(t *testing.T) {
	for _, changed := range []bool{true, false} {
		inBubble(t, func(r *rig) {
			r.set("a", "1")
			r.start()
			var times []time.Time
			if changed {
				r.set("a", "2")
			} else if _, err := r.server.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); err != nil {
				t.Fatal(err)
			}
			for i := range 40 { // of other resources
				_, err := r.server.Put(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", i)}})
				r.must(err)
			}
			r.server.CloseWatches(configMaps)
			time.Sleep(2*time.Minute + 5*time.Second) // a bookmark, and between two records of the progress
			times = append(times, time.Now().Add(-5*time.Second-1))
			r.stop()
			_, before := r.store.Find(r.of).Seen()

			restored := fakeapi.New(fakeapi.Options{})
			config, stop := fakeapi.InProcess(restored)
			defer stop()
			conn, err := cluster.New("test", config)
			r.must(err)
			defer conn.Close()
			old, oldConn := r.server, r.conn
			r.server, r.conn = restored, conn
			defer func() { r.server, r.conn = old, oldConn }()
			if changed {
				r.set("a", "restored")
			} else {
				a, err := old.Get(configMaps, "default", "a")
				r.must(err)
				a.SetResourceVersion("")
				r.must(restored.Insert(configMaps, a))
			}
			time.Sleep(time.Minute)
			r.start()
			time.Sleep(time.Second)
			if _, seen := r.store.Find(r.of).Seen(); seen >= before {
				t.Errorf("changed %v: the history reaches up to %d, as before the restore (%d)", changed, seen, before)
			}
			r.set("a", "after")
			time.Sleep(time.Second)
			version := object.Version(r.server.ResourceVersion())
			if changed {
				r.wantAt(times[0], "a=2", "")
			} else {
				r.wantAt(times[0], "a=1", "")
			}
			r.wantAt(time.Now(), "a=after", "")
			state, err := r.store.Find(r.of).AtVersion(version)
			r.must(err)
			defer state.Close()
			if v, ok, err := state.Get("default/a"); err != nil || !ok || !strings.Contains(string(v.Object), "after") {
				t.Errorf("at version %d there is %s, %v, %v", version, v.Object, ok, err)
			}
			r.stop()
		})
	}
}

// A recorder waits until an earlier one of the same resource has written what it has.
func TestRecordersThatFollowQuickly(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.set("a", "0")
		var stops []func()
		for i := range 10 {
			r.start()
			stops = append(stops, r.stop)
			r.set("a", fmt.Sprint(i+1))
			if len(stops) == 2 { // the second waits for the first
				stops[0]()
				stops = stops[1:]
				time.Sleep(time.Second)
			}
		}
		r.wantAt(time.Now(), "a=10", "")
		for _, stop := range stops {
			stop()
		}
		r.stop = nil
		for _, g := range r.store.Find(r.of).Gaps(time.Time{}, time.Now().Add(time.Hour)) {
			if strings.Contains(g.Reason, "unexpectedly") {
				t.Errorf("a recorder began before another had ended: %+v", g)
			}
		}
	})
}
