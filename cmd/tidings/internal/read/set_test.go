package read_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestSetLeavesAloneWhatHasNotChanged(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, mirror.Options{Resources: []string{"cm", mirror.Everything}}, func(r *rig) {
		r.set("default", "a", "1")
		synctest.Wait()
		w := r.watch(r.query("cm"), "")
		defer w.stop()
		w.expect("ADDED default/a@5", "SYNCED")

		other := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(other)
		defer stop()
		both := map[string]*rest.Config{"test": r.config, "other": config}
		r.must(r.mirror.Set(r.ctx, both))
		if got := r.mirror.Clusters(); fmt.Sprint(got) != "[other test]" {
			t.Errorf("clusters %v", got)
		}
		target, err := r.resolve("other", "cm")
		r.must(err)
		if got, _ := r.list(target); len(got) != 0 {
			t.Errorf("the other cluster has %v", got)
		}
		synctest.Wait() // the watch follows the list
		if n := other.OpenWatches(configMaps); n != 1 {
			t.Errorf("%d watches on the other cluster", n)
		}

		// A config that cannot be used changes nothing.
		if err := r.mirror.Set(r.ctx, with(both, "other", &rest.Config{Host: "http://%"})); err == nil {
			t.Error("no error for a config of no use")
		}
		if n := other.OpenWatches(configMaps); n != 1 {
			t.Errorf("%d watches on the other cluster", n)
		}

		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": r.config}))
		if n := other.OpenWatches(configMaps); n != 0 {
			t.Errorf("%d watches on a cluster that was removed", n)
		}
		r.refuse(r.listErr(target), mirror.Ended)
		w.expect("ADDED default/b@" + r.set("default", "b", "1"))
		if n := r.server.Count("list", configMaps); n != 1 {
			t.Errorf("the cluster that did not change was listed %d times", n)
		}
	})
}

func TestSetReplacesWhatHasChanged(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{Resources: []string{"cm"}}, func(r *rig) {
		r.set("default", "a", "1")
		other := fakeapi.New(fakeapi.Options{})
		config, stop := fakeapi.InProcess(other)
		defer stop()
		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": config}))
		if got, _ := r.list(r.query("cm")); len(got) != 0 {
			t.Errorf("what is there is of the cluster before: %v", got)
		}
		if n := r.server.OpenWatches(configMaps); n != 0 {
			t.Errorf("%d watches on the cluster before", n)
		}
	})
}

func TestRemovedClustersGiveBackTheirMemory(t *testing.T) {
	inBubbleOf(t, fakeapi.Options{}, mirror.Options{}, read.Options{PageTTL: time.Hour}, func(r *rig) {
		r.set("default", "a", "1")
		r.set("default", "b", "1")
		q := r.query("cm")
		var held weak.Pointer[read.Object]
		q.Limit = 1
		page, err := r.bind(q, read.List)
		r.must(err)
		_, err = r.reader.List(r.ctx, page, func(o *read.Object) error { // a page holds its state
			held = weak.Make(o)
			return nil
		})
		r.must(err)
		w := r.watch(q0(q), "")
		w.expect("ADDED default/a@5", "ADDED default/b@6", "SYNCED")
		runtime.GC()
		if held.Value() == nil {
			t.Fatal("the object is gone before its cluster is")
		}
		r.must(r.mirror.Set(r.ctx, nil))
		w.stop()
		synctest.Wait()
		runtime.GC()
		if held.Value() != nil {
			t.Error("the objects of a cluster that was removed are still in memory")
		}
	})
}

func q0(q read.Params) read.Params {
	q.Limit = 0
	return q
}

func TestFollow(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		broken := errors.New("broken")
		steps := func(steps ...any) iter.Seq2[map[string]*rest.Config, error] {
			return func(yield func(map[string]*rest.Config, error) bool) {
				for _, s := range steps {
					set, _ := s.(map[string]*rest.Config)
					err, _ := s.(error)
					if !yield(set, err) {
						return
					}
				}
			}
		}
		two := map[string]*rest.Config{"a": r.config, "b": rest.CopyConfig(r.config)}
		if err := r.mirror.Follow(r.ctx, steps(broken, two)); !errors.Is(err, broken) {
			t.Errorf("without a first set: %v", err)
		}
		r.must(r.mirror.Follow(r.ctx, steps(two, broken)))
		if got := r.mirror.Clusters(); len(got) != 2 {
			t.Errorf("an error took clusters away: %v", got)
		}
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		r.must(r.mirror.Follow(ctx, steps(map[string]*rest.Config{})))
		if got := r.mirror.Clusters(); len(got) != 2 {
			t.Errorf("after the end: %v", got)
		}
	})
}

func TestClosedMirrors(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{Resources: []string{"cm"}}, func(r *rig) {
		q := r.query("cm")
		r.close()
		r.refuse(r.listErr(q), mirror.Ended)
		_, err := r.resolve("", "cm")
		r.refuse(err, mirror.Ended)
		r.refuse(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": r.config}), mirror.Ended)
		if r.mirror.Status().Ready {
			t.Error("a closed mirror is ready")
		}
	})
}
