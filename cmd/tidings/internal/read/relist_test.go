package read_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// changes returns the events after a version, until none is left.
func (r *rig) changes(ask read.Params, from uint64) (out []string) {
	r.Helper()
	out, err := r.changesOr(ask, from)
	r.must(err)
	return out
}

func (r *rig) changesOr(ask read.Params, from uint64) (out []string, err error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Minute)
	defer cancel()
	q, err := r.bind(ask, read.Watch)
	if err != nil {
		return nil, err
	}
	events, err := r.reader.Changes(ctx, q, read.Exact, from)
	if err != nil {
		return nil, err
	}
	for e, err := range events {
		if err != nil {
			return out, err
		}
		if e.Object != nil {
			at := e.As
			if at == "" {
				at = e.Object.GetResourceVersion()
			}
			out = append(out, fmt.Sprintf("%s %s@%s", e.Type, e.Object.GetName(), at))
		}
	}
	return out, nil
}

// A client of the Kubernetes API may stop after any event of a relist and resume at that
// event's version: it must list again, or gets everything that is missing.
func TestStoppingWithinWhatAListFound(t *testing.T) {
	inBubble(t, fakeapi.Options{History: 20}, mirror.Options{Retain: 10_000}, func(r *rig) {
		for _, name := range []string{"a", "b", "c", "d"} {
			r.set("default", name, "1")
		}
		q := r.query("cm")
		_, meta := r.list(q)
		r.server.SetDown(true)
		r.delete("default", "b")
		r.set("default", "c", "2")
		r.delete("default", "d")
		r.set("default", "a", "2") // which has the version of the list
		r.server.Compact()
		r.server.SetDown(false)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		whole := r.changes(q, version(meta.ResourceVersion))
		if len(whole) != 4 {
			t.Fatalf("delivered %v", whole)
		}
		for i, last := range whole {
			var at uint64
			if _, err := fmt.Sscanf(last[slices.Index([]byte(last), '@')+1:], "%d", &at); err != nil {
				t.Fatal(err)
			}
			rest, err := r.changesOr(q, at)
			if mirror.ReasonOf(err) == mirror.Expired {
				continue
			}
			r.must(err)
			for _, missed := range whole[i+1:] {
				if !slices.ContainsFunc(rest, func(e string) bool { return e[:len("DELETED b")] == missed[:len("DELETED b")] }) {
					t.Errorf("behind %s of %v: %v", last, whole, rest)
				}
			}
		}
	})
}

// A client that has got changes from another replica, or from the API server, lists again when a
// relist finds them: it may have some of what the relist found, even deletions.
func TestAheadOfAList(t *testing.T) {
	inBubble(t, fakeapi.Options{History: 20}, mirror.Options{Retain: 10_000}, func(r *rig) {
		r.set("default", "a", "1")
		q := r.query("cm")
		r.set("default", "b", "1")
		r.list(q)
		r.server.SetDown(true)
		r.delete("default", "b")
		ahead := r.set("default", "a", "2")
		go func() {
			time.Sleep(time.Second)
			r.set("default", "c", "1")
			r.server.Compact()
			r.server.SetDown(false)
		}()
		got, err := r.changesOr(q, version(ahead))
		if mirror.ReasonOf(err) != mirror.Expired || len(got) > 0 {
			t.Errorf("delivered %v, %v", got, err)
		}
	})
}

// However many callers cancel their gets, at most 16 gets are in progress.
func TestGetsThatAreGivenUp(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		r.set("default", "a", "1")
		ask := r.query("cm")
		r.must(r.listErr(ask))
		var under, most atomic.Int64
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.Verb != "get" || req.Resource != configMaps {
				return nil
			}
			most.Store(max(most.Load(), under.Add(1)))
			context.AfterFunc(req.HTTP.Context(), func() { under.Add(-1) })
			return &fakeapi.Fault{Delay: time.Hour}
		})
		ask.Namespace, ask.Name = "default", "a"
		q, err := r.bind(ask, read.Get)
		r.must(err)
		for range 100 {
			ctx, cancel := context.WithCancel(r.ctx)
			go func() { _, _, _ = r.reader.Get(ctx, q, read.Latest, 0) }()
			synctest.Wait()
			cancel()
			synctest.Wait()
		}
		if n := most.Load(); n > 16 {
			t.Errorf("%d gets were under way at a time", n)
		}
	})
}

// A long list ends with its request.
func TestListsEndWithTheirRequest(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		for i := range 200 {
			r.set("default", fmt.Sprint("c", i), "1")
		}
		ask := r.query("cm")
		ask.Fields = fieldSelector(t, "metadata.name!=x")
		s, err := r.stateOf(ask, read.Any, 0)
		r.must(err)
		defer s.Release()
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		if found, err := s.List(ctx, "", 0); err == nil {
			t.Errorf("an ended request found %d objects", len(found))
		}
	})
}

// A kept state is found by its own version, even if the mirror has reached a later version
// without a change.
func TestHeldByItsVersion(t *testing.T) {
	inBubble(t, fakeapi.Options{BookmarkInterval: time.Second}, mirror.Options{Retain: 10}, func(r *rig) {
		at := r.set("default", "a", "1")
		q := r.query("cm")
		r.list(q)
		r.touch("other")
		latest, err := r.stateOf(q, read.Latest, 0)
		r.must(err)
		latest.Release()
		s, err := r.stateOf(q, read.Exact, version(at))
		r.must(err)
		s.Keep()
		s.Release()
		for i := range 50 {
			r.set("default", "noise", fmt.Sprint(i))
			synctest.Wait()
		}
		again, err := r.stateOf(q, read.Exact, version(at))
		r.must(err)
		again.Release()
	})
}
