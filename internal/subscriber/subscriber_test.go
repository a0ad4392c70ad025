package subscriber_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type meta = metav1.PartialObjectMetadata

func thing(name string, uid, version int) *meta {
	return &meta{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(strconv.Itoa(uid)), ResourceVersion: strconv.Itoa(version)}}
}

// reader takes events as slowly as the test wants, and keeps the state that they
// lead to.
type reader struct {
	subscriber *subscriber.Subscriber[*meta]
	resyncs    bool
	permits    chan struct{} // one for each event it may take
	state      map[string]*meta
	synced     bool
	syncs      int
	wrong      string // the first event that did not fit
	stop       context.CancelFunc
	done       chan struct{}
}

func (r *reader) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.subscriber.Run(ctx, false, func(e subscriber.Event[*meta]) bool {
			<-r.permits
			r.check(e)
			return true
		})
	}()
}

// halt interrupts the reader. An event that waits for a permit is still taken.
func (r *reader) halt() {
	r.stop()
	for {
		select {
		case r.permits <- struct{}{}:
		case <-r.done:
			return
		}
	}
}

// check checks that an event fits the reader's state, and applies it.
func (r *reader) check(e subscriber.Event[*meta]) {
	fail := func(format string, args ...any) {
		if r.wrong == "" {
			r.wrong = fmt.Sprintf(format, args...)
		}
	}
	if e.Type == subscriber.Synced {
		if r.synced {
			fail("synced twice")
		}
		r.synced = true
		return
	}
	key := e.Object.Name
	have := r.state[key]
	switch e.Type {
	case subscriber.Added:
		if have != nil || e.Old != nil {
			fail("%s was added as %v, but was %v", key, e.Object, have)
		}
		r.state[key] = e.Object
	case subscriber.Updated:
		if have == nil || have != e.Old || have.UID != e.Object.UID {
			fail("%s was updated from %v, but was %v", key, e.Old, have)
		}
		r.state[key] = e.Object
	case subscriber.Deleted:
		if have == nil || have != e.Old {
			fail("%s was deleted from %v, but was %v", key, e.Old, have)
		}
		delete(r.state, key)
	case subscriber.Sync:
		r.syncs++
		if have != e.Object || e.Old != e.Object {
			fail("%s was synced as %v, but was %v", key, e.Object, have)
		}
	}
}

// TestModel runs random histories with subscribers that keep everything, that fold,
// and that resync, each of which is stuck, stopped and started at random. It checks
// that every event fits the state before it, that a subscriber that has caught up has
// the store's state, and that the backlog of one that folds is bounded by the number
// of objects.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { rapid.SyncTest(t, model) })
}

func model(t *rapid.T) {
	const limit = 3
	names := []string{"a", "b", "c", "d", "e"}
	ix := indexer.New(indexer.Options[*meta]{})
	held := map[string]*meta{}
	version, uid := 100, 0
	var readers []*reader
	for _, opts := range []subscriber.Options{{}, {Fold: limit}, {Resync: time.Minute}, {Fold: limit, Resync: time.Minute}} {
		r := &reader{subscriber: subscriber.Subscribe(ix, opts), resyncs: opts.Resync > 0, permits: make(chan struct{}), state: map[string]*meta{}}
		r.start()
		readers = append(readers, r)
	}
	defer func() {
		for _, r := range readers {
			r.halt()
			r.subscriber.Release()
		}
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Bookmark, List: &delta.List[*meta]{ResourceVersion: strconv.Itoa(version + 1)}}})
		if n := ix.Stats().Pinned; n > 0 {
			t.Errorf("%d views are still pinned", n)
		}
	}()
	relist := func() {
		version++
		for _, name := range names {
			switch rapid.IntRange(0, 3).Draw(t, "unseen "+name) {
			case 0:
				delete(held, name)
			case 1:
				uid++
				version++
				held[name] = thing(name, uid, version)
			}
		}
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: slices.Collect(maps.Values(held)), ResourceVersion: strconv.Itoa(version)}}})
	}
	relist()
	pick := func() *reader { return readers[rapid.IntRange(0, len(readers)-1).Draw(t, "reader")] }
	t.Repeat(map[string]func(*rapid.T){
		"change": func(t *rapid.T) {
			var deltas []delta.Delta[*meta]
			for range rapid.IntRange(1, 8).Draw(t, "changes") {
				name := rapid.SampledFrom(names).Draw(t, "name")
				version++
				have := held[name]
				switch {
				case have == nil:
					uid++
					held[name] = thing(name, uid, version)
					deltas = append(deltas, delta.Delta[*meta]{Type: delta.Added, Object: held[name]})
				case rapid.Bool().Draw(t, "delete"):
					id, _ := strconv.Atoi(string(have.UID))
					delete(held, name)
					deltas = append(deltas, delta.Delta[*meta]{Type: delta.Deleted, Object: thing(name, id, version)})
				default:
					id, _ := strconv.Atoi(string(have.UID))
					held[name] = thing(name, id, version)
					deltas = append(deltas, delta.Delta[*meta]{Type: delta.Updated, Object: held[name]})
				}
			}
			ix.Apply(deltas)
		},
		"relist": func(t *rapid.T) { relist() },
		"empty": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "rarely") == 0 {
				ix.Empty()
				clear(held)
				relist()
			}
		},
		"take": func(t *rapid.T) {
			r := pick()
			for range rapid.IntRange(1, 5).Draw(t, "events") {
				select {
				case r.permits <- struct{}{}:
				default: // it waits for events
				}
				synctest.Wait()
			}
		},
		"restart": func(t *rapid.T) {
			r := pick()
			r.halt()
			r.start()
		},
		"time": func(t *rapid.T) { time.Sleep(40 * time.Second) },
		"catch up": func(t *rapid.T) {
			for i, r := range readers {
				before := r.syncs
				for waiting := true; waiting; {
					synctest.Wait()
					select {
					case r.permits <- struct{}{}:
					default:
						waiting = false
					}
				}
				if got := r.state; !maps.EqualFunc(got, held, func(a, b *meta) bool { return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion }) || len(got) != len(held) {
					t.Fatalf("subscriber %d has %v, the store %v", i, keysOf(got), keysOf(held))
				}
				if s := r.subscriber.Status(); s.Lag != 0 || s.Backlog != 0 || !s.Synced || !r.synced {
					t.Fatalf("subscriber %d has caught up, and its status is %+v", i, s)
				}
				if !r.resyncs && r.syncs > before {
					t.Fatalf("subscriber %d was resynced without a request", i)
				}
			}
		},
		"": func(t *rapid.T) {
			synctest.Wait()
			for i, r := range readers {
				if r.wrong != "" {
					t.Fatalf("subscriber %d: %s", i, r.wrong)
				}
				// The batch being delivered, the backlog, and a deletion for each name.
				if s := r.subscriber.Status(); i%2 == 1 && s.Backlog > uint64(4*len(names)+2*limit) {
					t.Fatalf("subscriber %d folds and still has %d events waiting for %d objects", i, s.Backlog, len(held))
				}
			}
		},
	})
}

func keysOf(m map[string]*meta) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"@"+m[k].ResourceVersion)
	}
	return out
}

// TestFoldEarlierThanBefore checks that a lower limit takes effect with the next
// event.
func TestFoldEarlierThanBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 1)}, ResourceVersion: "1"}}})
		limit := 100
		f := subscriber.Subscribe(ix, subscriber.Options{FoldBy: func() int { return limit }})
		gate, done := make(chan struct{}), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(done)
			f.Run(ctx, false, func(subscriber.Event[*meta]) bool { <-gate; return true })
		}()
		change := func(from, to int) {
			for v := from; v < to; v++ {
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("a", 1, v)}})
				synctest.Wait()
			}
		}
		change(2, 52)
		if s := f.Status(); s.Backlog != 50 || s.Folded != 0 {
			t.Errorf("with room for 100, after 50 events: %+v", s)
		}
		limit = 10
		change(52, 53)
		if s := f.Status(); s.Backlog != 1 || s.Folded != 50 {
			t.Errorf("with room for 10, after one more: %+v", s)
		}
		close(gate)
		synctest.Wait()
		cancel()
		<-done
		f.Release()
	})
}

// TestFoldKeepsWhatCounts checks that many updates are folded into the last, with the
// state before the first as Old; that an object that was added and deleted is not
// delivered; and that a name that was taken by another object is delivered twice.
func TestFoldKeepsWhatCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{})
		first := thing("a", 1, 1)
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{first, thing("b", 2, 2)}, ResourceVersion: "2"}}})
		f := subscriber.Subscribe(ix, subscriber.Options{Fold: 2})
		gate := make(chan struct{})
		var delivered []subscriber.Event[*meta]
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, false, func(e subscriber.Event[*meta]) bool {
				delivered = append(delivered, e)
				if e.Type == subscriber.Synced {
					<-gate
				}
				return true
			})
		}()
		synctest.Wait()
		delivered = nil
		for v := 10; v < 1000; v++ {
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("a", 1, v)}})
		}
		ix.Apply([]delta.Delta[*meta]{
			{Type: delta.Added, Object: thing("short", 3, 1001)}, {Type: delta.Deleted, Object: thing("short", 3, 1002)},
			{Type: delta.Deleted, Object: thing("b", 2, 1003)}, {Type: delta.Added, Object: thing("b", 4, 1004)},
		})
		synctest.Wait()
		if s := f.Status(); s.Lag != 994 || s.Backlog != 3 || s.Folded != 991 {
			t.Errorf("the status is %+v", s)
		}
		close(gate)
		synctest.Wait()
		cancel()
		<-done
		f.Release()
		if len(delivered) != 3 || delivered[0].Type != subscriber.Updated || delivered[0].Old != first || delivered[0].Object.ResourceVersion != "999" ||
			delivered[1].Type != subscriber.Deleted || delivered[1].Object.Name != "b" || delivered[2].Type != subscriber.Added || delivered[2].Object.UID != "4" {
			t.Errorf("delivered %+v", delivered)
		}
		if delivered[0].Resumable || !delivered[2].Resumable {
			t.Error("a folded backlog can be resumed from at its end, and only there")
		}
		if !delivered[0].Folded || !delivered[2].Folded {
			t.Error("folded events do not say so")
		}
	})
}
