package subscriber_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

func things(n, version int) (items []*meta) {
	for i := range n {
		items = append(items, thing(strconv.Itoa(1000+i), i, version+i))
	}
	return items
}

// TestStatusFollowsEachEvent checks that the status of a slow subscriber changes with
// each event: in the initial list, in the first list of the store, in a long batch of
// changes, and in a folded one.
func TestStatusFollowsEachEvent(t *testing.T) {
	const objects = 500
	list := []delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: things(objects, 1), ResourceVersion: "1000"}}}
	var changes []delta.Delta[*meta]
	for _, o := range things(objects, 2000) {
		changes = append(changes, delta.Delta[*meta]{Type: delta.Updated, Object: o})
	}
	for name, test := range map[string]struct {
		before, after []delta.Delta[*meta] // the subscriber begins between them
		opts          subscriber.Options
	}{
		"initial list":            {before: list},
		"first list of the store": {after: list},
		"changes":                 {before: list, after: changes, opts: subscriber.Options{SkipInitial: true}},
		"folded changes":          {before: list, after: changes, opts: subscriber.Options{SkipInitial: true, Fold: 10}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ix := indexer.New(indexer.Options[*meta]{})
				ix.Apply(test.before)
				f := subscriber.Subscribe(ix, test.opts)
				ix.Apply(test.after)
				came := time.Now()
				time.Sleep(time.Minute)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() {
					defer close(done)
					f.Run(ctx, false, func(subscriber.Event[*meta]) bool {
						time.Sleep(time.Second)
						return true
					})
				}()
				time.Sleep(time.Second / 2)
				for i := uint64(1); i <= objects; i++ {
					s := f.Status()
					since := came
					if i == objects {
						since = time.Time{}
					}
					if s.Delivered != i || s.Backlog != objects-i || !s.Since.Equal(since) {
						t.Fatalf("at event %d the status is %+v; the events came at %v", i, s, came)
					}
					time.Sleep(time.Second)
				}
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("1000", 0, 5000)}})
				synctest.Wait()
				time.Sleep(2 * time.Second)
				if s := f.Status(); s.Lag != 0 || s.Backlog != 0 || !s.Since.IsZero() || s.Delivered < objects+1 {
					t.Errorf("caught up, the status is %+v", s)
				}
				cancel()
				<-done
				f.Release()
			})
		})
	}
}

// TestStatusOfAFastSubscriber checks that a subscriber that stops in the middle of many
// events is less than countEvery events behind in its status, and that one that goes
// on is not.
func TestStatusOfAFastSubscriber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const objects, stuckAt = 500, 300
		ix := indexer.New(indexer.Options[*meta]{})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: things(objects, 1), ResourceVersion: "1000"}}})
		f := subscriber.Subscribe(ix, subscriber.Options{})
		gate, delivered := make(chan struct{}), 0
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Run(ctx, false, func(subscriber.Event[*meta]) bool {
				if delivered++; delivered == stuckAt {
					<-gate
				}
				return true
			})
		}()
		synctest.Wait()
		if s := f.Status(); s.Delivered <= stuckAt-32 || s.Delivered > stuckAt || s.Backlog+s.Delivered != objects {
			t.Errorf("stuck at event %d, the status is %+v", stuckAt, s)
		}
		close(gate)
		synctest.Wait()
		if s := f.Status(); s.Delivered != objects+1 || s.Backlog != 0 || !s.Since.IsZero() { // with Synced
			t.Errorf("caught up, the status is %+v", s)
		}
		cancel()
		<-done
		f.Release()
	})
}
