package read_test

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// state returns the objects of a state, as "namespace/name@version".
func (r *rig) state(q read.Params, match read.Match, version uint64) ([]string, string) {
	r.Helper()
	s, err := r.stateOf(q, match, version)
	r.must(err)
	defer s.Release()
	found, _ := s.List(r.ctx, "", 0)
	out := []string{}
	for _, o := range found {
		out = append(out, line(o))
	}
	return out, s.ResourceVersion()
}

func version(s string) uint64 {
	v, _ := strconv.ParseUint(s, 10, 64)
	return v
}

// touch changes another resource: the version of the cluster increases, that of the config
// maps does not.
func (r *rig) touch(name string) string {
	r.Helper()
	o, err := r.server.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	r.must(err)
	return o.GetResourceVersion()
}

func TestLatestHasWhatWasThereWhenItWasAskedFor(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q := r.query("configmaps")
		r.set("default", "first", "1")
		r.state(q, read.Latest, 0)
		for i := range 40 {
			want := r.set("default", fmt.Sprint("c", i%7), fmt.Sprint(i))
			if i%3 == 0 {
				want = r.touch(fmt.Sprint("n", i))
			}
			begun := time.Now()
			found, at := r.state(q, read.Latest, 0)
			if version(at) < version(want) {
				t.Fatalf("%s, though the cluster was at %s", at, want)
			}
			if took := time.Since(begun); took > time.Second {
				t.Errorf("it took %s", took)
			}
			q := q
			q.Namespace, q.Name = "default", fmt.Sprint("c", i%7)
			if o, _, err := r.get(q, read.Latest, 0); err != nil || string(o.JSON()) == "" {
				t.Fatalf("%v, though %v", err, found)
			}
		}
	})
}

func TestLatestAsksOnceForAll(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q := r.query("configmaps")
		r.set("default", "a", "1")
		r.state(q, read.Latest, 0)
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Verb == "list" {
				return &fakeapi.Fault{Delay: 15 * time.Millisecond}
			}
			return nil
		})
		r.server.ResetCounts()
		want := r.touch("n")
		var all sync.WaitGroup
		for range 200 {
			all.Go(func() {
				if _, at := r.state(q, read.Latest, 0); version(at) < version(want) {
					t.Errorf("%s, though the cluster was at %s", at, want)
				}
			})
		}
		all.Wait()
		if n := r.server.Count("list", configMaps); n == 0 || n > 2 {
			t.Errorf("%d requests for 200 reads", n)
		}
	})
}

// TestNewestIsAskedForOnce: concurrent gets of the newest version of one object share a
// request. Gets of too many objects at the same time are answered by the mirror.
func TestNewestIsAskedForOnce(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q := r.query("configmaps")
		for i := range 300 {
			r.set("default", fmt.Sprint("c", i), "1")
		}
		r.state(q, read.Latest, 0)
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault { return &fakeapi.Fault{Delay: 15 * time.Millisecond} })
		ask := func(name func(i int) string, most int) {
			t.Helper()
			want := version(r.set("default", name(7), "2"))
			r.server.ResetCounts()
			var all sync.WaitGroup
			for i := range 200 {
				all.Go(func() {
					one := q
					one.Namespace, one.Name = "default", name(i)
					o, _, err := r.get(one, read.Latest, 0)
					if err != nil || one.Name == name(7) && version(o.GetResourceVersion()) < want {
						t.Errorf("%v, %v: not what there was at %d", o, err, want)
					}
				})
			}
			all.Wait()
			if n := r.server.Count("get", configMaps) + r.server.Count("list", configMaps); n == 0 || n > most {
				t.Errorf("%d requests for 200 reads", n)
			}
		}
		ask(func(int) string { return "c1" }, 2)
		ask(func(i int) string { return fmt.Sprint("c", i) }, 20)
	})
}

// TestLatestOfVeryMany: a list of all objects waits no longer than a live list would take,
// or for a bookmark if that takes long. A get of one of them does not wait for that.
func TestLatestOfVeryMany(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		for i := range 10_050 {
			r.set("default", fmt.Sprint("c", i), "1")
		}
		r.set("default", "few", "1", "is=few")
		q := r.query("configmaps")
		r.state(q, read.Any, 0)
		whole := func(most time.Duration) {
			t.Helper()
			want := r.touch("n" + strconv.FormatInt(int64(most), 10))
			r.server.ResetCounts()
			begun := time.Now()
			found, at := r.state(q, read.Latest, 0)
			if len(found) != 10_051 || version(at) < version(want) {
				t.Fatalf("%d at %s; the cluster was at %s", len(found), at, want)
			}
			if took := time.Since(begun); took > most || r.server.Count("watch", configMaps) > 1 {
				t.Errorf("it took %s and %d watches", took, r.server.Count("watch", configMaps))
			}
		}
		whole(100 * time.Millisecond)
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Verb == "list" && req.HTTP.URL.Query().Get("limit") == "" && req.HTTP.URL.Query().Get("labelSelector") == "" {
				return &fakeapi.Fault{Delay: 9 * time.Second}
			}
			return nil
		})
		whole(3 * time.Second)
		want := r.touch("m")
		begun := time.Now()
		one := q
		one.Namespace, one.Name = "default", "c7"
		_, _, err := r.get(one, read.Latest, 0)
		r.must(err)
		if took := time.Since(begun); took > 100*time.Millisecond {
			t.Errorf("a get took %s", took)
		}
		one.Name = "nothing"
		if _, _, err := r.get(one, read.Latest, 0); mirror.ReasonOf(err) != mirror.NotFound {
			t.Errorf("%v", err)
		}
		few := q
		few.Labels = selector(t, "is=few")
		begun = time.Now()
		if found, at := r.state(few, read.Latest, 0); len(found) != 1 || version(at) < version(want) || time.Since(begun) > 100*time.Millisecond {
			t.Errorf("%v at %s after %s", found, at, time.Since(begun))
		}
	})
}

// TestIdentity: the identity of a state changes with every change of the resource, and not
// with changes of others.
func TestIdentity(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		q := r.query("configmaps")
		r.set("default", "a", "1")
		seen := map[read.Identity]string{}
		last, at := read.Identity{}, ""
		check := func(what string, same bool) {
			t.Helper()
			s, err := r.stateOf(q, read.Latest, 0)
			r.must(err)
			defer s.Release()
			id, ok := s.Identity()
			if !ok || same != (id == last) || !same && seen[id] != "" || s.ResourceVersion() == at {
				t.Errorf("%s: %v (%v) at %s, after %v at %s", what, id, ok, s.ResourceVersion(), last, at)
			}
			seen[id], last, at = what, id, s.ResourceVersion()
		}
		check("at first", false)
		r.touch("n")
		check("something else has changed", true)
		r.set("default", "a", "2")
		check("an update", false)
		r.set("default", "b", "2")
		check("an addition", false)
		r.touch("m")
		check("something else has changed", true)
		r.delete("default", "b")
		check("a deletion", false)
		r.set("default", "b", "2")
		check("another one of the same name", false)
	})
}

func TestVersionsOfTheFuture(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		at := r.set("default", "a", "1")
		q := r.query("configmaps")
		r.state(q, read.Any, 0)
		// The mirror reaches the version of the cluster, though the resource has not
		// changed.
		want := r.touch("n")
		if _, at := r.state(q, read.NotOlderThan, version(want)); version(at) < version(want) {
			t.Errorf("%s, not %s", at, want)
		}
		begun := time.Now()
		_, err := r.stateOf(q, read.NotOlderThan, version(want)+1_000)
		var tooLarge *read.TooLargeError
		if !errors.As(err, &tooLarge) || tooLarge.Want != version(want)+1_000 || tooLarge.Have < version(at) {
			t.Errorf("%v", err)
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("it took %s", took)
		}
		// A version that the cluster reaches during the wait is answered.
		done := make(chan string)
		go func() {
			_, at := r.state(q, read.NotOlderThan, version(want)+1)
			done <- at
		}()
		time.Sleep(time.Second) // of the bubble's time
		r.touch("m")
		if at := <-done; version(at) <= version(want) {
			t.Errorf("%s", at)
		}
	})
}

func TestClusterThatDoesNotAnswer(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		q := r.query("configmaps")
		r.state(q, read.Any, 0)
		r.server.SetDown(true)
		if _, err := r.stateOf(q, read.Latest, 0); mirror.ReasonOf(err) != mirror.Unreachable {
			t.Errorf("%v", err)
		}
		if found, _ := r.state(q, read.Any, 0); len(found) != 1 {
			t.Errorf("%v", found)
		}
		r.server.SetDown(false)
		if found, _ := r.state(q, read.Latest, 0); len(found) != 1 {
			t.Errorf("%v", found)
		}
	})
}

// TestPast compares the states that are built from the log with what the store had.
func TestPast(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.IntRange(0, 23), 1, 60).Draw(rt, "steps")
		inBubble(t, fakeapi.Options{}, mirror.Options{Retain: 30}, func(r *rig) {
			q := r.query("configmaps")
			begun := r.set("default", "zero", "0")
			_, base := r.state(q, read.Latest, 0)
			r.set("default", "one", "1")
			was := map[string][]string{}
			var versions []string
			for i, step := range steps {
				namespace, name := []string{"a", "b"}[step%2], fmt.Sprint("c", step/2%3)
				var at string
				switch {
				case step < 14:
					at = r.set(namespace, name, fmt.Sprint(i))
				case step < 20:
					if _, err := r.server.Get(configMaps, namespace, name); err == nil {
						r.delete(namespace, name)
					}
					at = r.server.ResourceVersion()
				default:
					at = r.touch(fmt.Sprint("n", i))
				}
				now, _ := r.state(q, read.Latest, 0)
				was[at], versions = now, append(versions, at)
			}
			for _, at := range versions {
				s, err := r.stateOf(q, read.Exact, version(at))
				if mirror.ReasonOf(err) == mirror.Expired && len(steps) > 25 {
					continue // and not retained
				}
				r.must(err)
				found, _ := s.List(r.ctx, "", 0)
				got := []string{}
				for _, o := range found {
					got = append(got, line(o))
				}
				if fmt.Sprint(got) != fmt.Sprint(was[at]) || s.ResourceVersion() != at {
					rt.Errorf("at %s: %v, not %v", at, got, was[at])
				}
				half := q
				half.Namespace = "a"
				in, err := r.stateOf(half, read.Exact, version(at))
				r.must(err)
				some, err := in.List(r.ctx, "", 1)
				r.must(err)
				all, err := in.List(r.ctx, "", 0)
				r.must(err)
				if want := in.Count("", 0); len(some) != min(want, 1) || len(all) != want {
					rt.Errorf("at %s: %d and %d in namespace a, of %d", at, len(some), len(all), want)
				}
				in.Release()
				s.Release()
			}
			if version(begun) < version(base) {
				if _, err := r.stateOf(q, read.Exact, version(begun)-1); mirror.ReasonOf(err) != mirror.Expired {
					rt.Errorf("before the first list: %v", err)
				}
			}
		})
	})
}
