package read_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestWatch(t *testing.T) {
	for _, source := range []read.Source{read.Cache, read.Live} {
		t.Run(string(source), func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
				a := r.set("default", "a", "1")
				q := r.query("cm")
				q.Source = source
				w := r.watch(q, "")
				defer w.stop()
				w.expect("ADDED default/a@"+a, "SYNCED")
				b := r.set("default", "b", "1")
				a = r.set("default", "a", "2")
				w.expect("ADDED default/b@"+b, "MODIFIED default/a@"+a)
				r.delete("default", "b")
				w.expect("DELETED default/b@" + r.server.ResourceVersion())
			})
		})
	}
}

func TestWatchTellsOfTheSelectionOnly(t *testing.T) {
	for _, source := range []read.Source{read.Cache, read.Live} {
		t.Run(string(source), func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
				q := r.query("cm")
				q.Source, q.Namespace, q.Labels = source, "default", selector(t, "in=yes")
				r.set("default", "x", "1", "in=no")
				w := r.watch(q, "")
				defer w.stop()
				w.expect("SYNCED")
				r.set("kube-public", "elsewhere", "1", "in=yes")
				v := r.set("default", "x", "2", "in=yes")
				w.expect("ADDED default/x@" + v)
				v = r.set("default", "x", "3", "in=yes")
				w.expect("MODIFIED default/x@" + v)
				r.set("default", "x", "4", "in=no")
				r.set("default", "x", "5", "in=no")
				v = r.set("default", "x", "6", "in=yes")
				// The deletion has the last version that matched, as in the
				// API server, which also sets the version of the change in
				// the object.
				if got := w.next(); got[:len("DELETED default/x")] != "DELETED default/x" {
					t.Errorf("got %q", got)
				}
				w.expect("ADDED default/x@" + v)
				r.delete("default", "x")
				w.expect("DELETED default/x@" + r.server.ResourceVersion())
			})
		})
	}
}

func TestWatchPositionsMoveThroughSilence(t *testing.T) {
	inBubble(t, fakeapi.Options{BookmarkInterval: 10 * time.Second}, mirror.Options{Retain: 10}, func(r *rig) {
		q := r.query("cm")
		q.Namespace = "default"
		w := r.watch(q, "")
		w.expect("SYNCED")
		last := ""
		for i := range 50 {
			last = r.set("kube-public", "noise", fmt.Sprint(i))
		}
		var e read.Event
		for e.ResumePoint != last {
			e = <-w.events
			if e.Type != read.Bookmark || e.Object != nil {
				t.Fatalf("got %+v", e)
			}
		}
		w.stop()
		w = r.watch(q, e.ResumePoint)
		defer w.stop()
		v := r.set("default", "a", "1")
		w.expect("ADDED default/a@" + v)
	})
}

func TestResume(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{Retain: 5}, func(r *rig) {
		q := r.query("cm")
		v1 := r.set("default", "a", "1")
		_, meta := r.list(q)
		v2 := r.set("default", "a", "2")
		v3 := r.set("default", "b", "1")

		w := r.watch(q, meta.ResourceVersion) // of a list
		w.expect("MODIFIED default/a@"+v2, "ADDED default/b@"+v3)
		w.stop()
		w = r.watch(q, v2) // of an event
		w.expect("ADDED default/b@" + v3)
		w.stop()
		w = r.watch(q, "0") // from the beginning, for one who has a part already
		w.expect("RESET", "ADDED default/a@"+v2, "ADDED default/b@"+v3, "SYNCED")
		w.stop()
		for i := range 10 {
			v3 = r.set("default", "b", fmt.Sprint("again ", i))
		}
		synctest.Wait()
		for _, since := range []string{v1, "1", "1.3"} { // no longer known
			w = r.watch(q, since)
			w.expect("RESET", "ADDED default/a@"+v2, "ADDED default/b@"+v3, "SYNCED")
			v3 = r.set("default", "b", since)
			w.expect("MODIFIED default/b@" + v3)
			w.stop()
		}
		for _, since := range []string{"x", "-1", "007", "1.", "1.0", "1.x", "1.01", "1.-1", "99999999999999999999", " 1", "1.99999999999999999999"} {
			for _, q.Source = range []read.Source{read.Cache, read.Live} {
				_, err := r.events(r.ctx, q, since)
				r.refuse(err, mirror.Invalid)
			}
		}
		q.Source, q.Limit = "", 1
		_, err := r.events(r.ctx, q, "")
		r.refuse(err, mirror.Invalid)
	})
}

// A client that has read from another mirror, or from the API server, may be ahead.
func TestResumeWaitsForTheMirrorToCatchUp(t *testing.T) {
	inBubble(t, fakeapi.Options{BookmarkInterval: time.Second}, mirror.Options{}, func(r *rig) {
		q := r.query("cm")
		r.must(r.listErr(q))
		r.set("default", "a", "1")
		ahead := r.server.ResourceVersion()
		w := r.watch(q, ahead)
		v := r.set("default", "b", "1")
		w.expect("ADDED default/b@" + v)
		w.stop()
		w = r.watch(q, "1000000") // never comes
		defer w.stop()
		if got := w.next(); got != "RESET" {
			t.Errorf("got %q", got)
		}
	})
}

// A watch that is interrupted and resumed anywhere, even among the changes of a relist,
// delivers the same events as one that is not.
func TestResumedWatchesTellTheSame(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, fakeapi.Options{History: 20}, mirror.Options{Retain: 10_000}, func(r *rig) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			q := r.query("cm")
			if rnd.IntN(2) == 0 {
				q.Labels = selector(t, "in=yes")
			}
			r.must(r.listErr(q))
			whole := r.watch(q, "")
			whole.expect("SYNCED")
			defer whole.stop()
			_, meta := r.list(q)
			position := meta.ResourceVersion

			var wants, got []string
			for round := range 30 {
				outage := rnd.IntN(3) == 0
				if outage { // what happens meanwhile is learnt from a list
					r.server.SetDown(true)
				}
				for range rnd.IntN(60) {
					name, in := fmt.Sprint("cm-", rnd.IntN(8)), []string{"in=yes", "in=no"}[rnd.IntN(2)]
					if _, err := r.server.Get(configMaps, "default", name); err == nil && rnd.IntN(3) == 0 {
						r.delete("default", name)
					} else {
						r.set("default", name, fmt.Sprint(round, rnd.Int()), in)
					}
				}
				if outage {
					r.server.Compact()
					r.server.SetDown(false)
				}
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				wants = append(wants, drain(whole)...)
				for broken := true; broken; {
					// Read some events and leave the loop, or read all.
					ctx, cancel := context.WithCancel(r.ctx)
					events, err := r.events(ctx, q, position)
					r.must(err)
					left := 1 + rnd.IntN(10)
					idle := time.AfterFunc(time.Second, cancel)
					broken = false
					for e, err := range events {
						r.must(err)
						if e.ResumePoint != "" {
							position = e.ResumePoint
						}
						if e.Type == read.Bookmark {
							continue
						}
						got = append(got, fmt.Sprint(e.Type, " ", line(e.Object)))
						if left--; left == 0 {
							broken = true
							break
						}
					}
					idle.Stop()
					cancel()
				}
			}
			same(t, fmt.Sprint("seed ", seed), got, wants)
		})
	}
}

// drain returns the events that have not been read.
func drain(w *watcher) []string {
	var out []string
	for {
		synctest.Wait()
		select {
		case e := <-w.events:
			if e.Object != nil {
				out = append(out, fmt.Sprint(e.Type, " ", line(e.Object)))
			}
		default:
			return out
		}
	}
}

func TestLiveWatchOutlivesItsConnections(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q := r.query("cm")
		q.Source = read.Live
		w := r.watch(q, "")
		defer w.stop()
		w.expect("SYNCED")
		time.Sleep(2 * time.Second)
		r.server.CloseWatches(configMaps) // in good order
		synctest.Wait()
		v := r.set("default", "a", "1")
		w.expect("ADDED default/a@" + v)
		r.server.FailWatches(configMaps, apierrors.NewResourceExpired("too old"))
		w.expect("RESET", "ADDED default/a@"+v, "SYNCED")
		synctest.Wait()
		r.server.AbortWatches(configMaps)
		w.expect("end: Unreachable")
	})
}

func TestWatchesEndWithTheirCluster(t *testing.T) {
	for _, source := range []read.Source{read.Cache, read.Live} {
		inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
			r.set("default", "a", "1")
			for _, change := range []func(){
				func() {
					r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": rest.CopyConfig(r.config)}))
				},
				func() { r.must(r.mirror.Set(r.ctx, nil)) },
				func() { r.close() },
			} {
				q := r.query("cm")
				q.Source = source
				w := r.watch(q, "")
				w.expect("ADDED default/a@5", "SYNCED")
				idle := r.watch(q, "")
				synctest.Wait()
				change()
				w.expect("end: Ended") // and nothing of the store being emptied
				idle.stop()
				_, err := r.events(r.ctx, q, "")
				if source == read.Cache {
					r.refuse(err, mirror.Ended)
				}
				if r.mirror.Set(r.ctx, map[string]*rest.Config{"test": r.config}) != nil {
					return // closed
				}
			}
		})
	}
}

// A slow watch gets the newest event of each object. If it is interrupted among these, it
// begins anew.
func TestSlowWatchesAreToldTheNewest(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		v := r.set("default", "a", "1")
		q := r.query("cm")
		w := r.watch(q, "")
		w.expect("ADDED default/a@"+v, "SYNCED") // and does not read on
		defer w.stop()
		for i := range 20_000 {
			v = r.set("default", "a", fmt.Sprint("again ", i))
		}
		other := r.set("default", "b", "1")
		r.set("default", "c", "1")
		synctest.Wait()
		delivered, middle := 0, read.Event{}
		for e := range w.events {
			if delivered++; e.Object != nil && e.Object.GetResourceVersion() == v {
				middle = e
			}
			if e.Object != nil && e.Object.GetName() == "c" {
				break
			}
		}
		// Up to 5,000 events wait unfolded; more are folded.
		if delivered > 5_100 {
			t.Errorf("20,000 changes of one object were delivered as %d", delivered)
		}
		resumed := r.watch(q, middle.ResumePoint)
		defer resumed.stop()
		if middle.ResumePoint == "0" {
			resumed.expect("RESET", "ADDED default/a@"+v)
		}
		resumed.expect("ADDED default/b@" + other)
	})
}
