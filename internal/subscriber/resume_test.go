package subscriber_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

var synced = strconv.Itoa(int(subscriber.Synced))

// follow runs a subscriber until it waits, and returns what it delivered.
func follow(t *testing.T, f *subscriber.Subscriber[*meta]) (delivered []string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx, false, func(e subscriber.Event[*meta]) bool {
			s := fmt.Sprintf("%d@%d", e.Type, e.ResourceVersion)
			if e.Object != nil {
				s = fmt.Sprintf("%d %s@%d", e.Type, e.Object.Name, e.ResourceVersion)
			}
			if e.Resumable {
				s += " resumable"
			}
			delivered = append(delivered, s)
			return true
		})
	}()
	synctest.Wait()
	cancel()
	<-done
	f.Release()
	return delivered
}

// TestResumeAndFold checks that events that a resumed subscriber has seen are not
// folded into those it has not seen.
func TestResumeAndFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 100})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "10"}}})
		ix.Apply([]delta.Delta[*meta]{ // one batch
			{Type: delta.Added, Object: thing("a", 1, 11)}, {Type: delta.Added, Object: thing("b", 2, 12)},
			{Type: delta.Deleted, Object: thing("a", 1, 13)}, {Type: delta.Added, Object: thing("a", 3, 14)},
			{Type: delta.Updated, Object: thing("b", 2, 15)},
		})
		f, ok := subscriber.Resume(ix, 11, subscriber.Options{Fold: 2}) // it has seen a
		if !ok {
			t.Fatal("cannot resume")
		}
		if delivered, want := follow(t, f), []string{"3 a@13", "1 a@14", "1 b@15 resumable"}; !slices.Equal(delivered, want) {
			t.Errorf("delivered %q, not %q", delivered, want)
		}
	})
}

// TestResumable checks that an event is resumable only if the whole state of its
// version was delivered.
func TestResumable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 100})
		early, folding := subscriber.Subscribe(ix, subscriber.Options{}), subscriber.Subscribe(ix, subscriber.Options{Fold: 1})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 3), thing("b", 2, 4)}, ResourceVersion: "10"}}})
		ix.Apply([]delta.Delta[*meta]{
			{Type: delta.Added, Object: thing("short", 3, 11)}, {Type: delta.Updated, Object: thing("a", 1, 12)},
			{Type: delta.Deleted, Object: thing("short", 3, 13)},
		})
		want := []string{"1 a@10", "1 b@10 resumable", synced + "@10 resumable", "1 short@11 resumable", "2 a@12 resumable", "3 short@13 resumable"}
		if delivered := follow(t, early); !slices.Equal(delivered, want) {
			t.Errorf("delivered\n%q, not\n%q", delivered, want)
		}
		// The state of 12 has an object that this one never gets.
		want = []string{"1 b@10", "1 a@12", synced + "@13 resumable"}
		if delivered := follow(t, folding); !slices.Equal(delivered, want) {
			t.Errorf("delivered\n%q, not\n%q", delivered, want)
		}
		// The state of an emptied store is not one of the source.
		late := subscriber.Subscribe(ix, subscriber.Options{})
		ix.Empty()
		want = []string{"1 a@13", "1 b@13", synced + "@13 resumable", "3 a@13", "3 b@13"}
		if delivered := follow(t, late); !slices.Equal(delivered, want) {
			t.Errorf("delivered\n%q, not\n%q", delivered, want)
		}
	})
}

// TestResumeWithinAList checks that a subscriber cannot resume between the state before
// a relist and its end: it may have seen some of the deletions that the relist found.
func TestResumeWithinAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 100})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 3), thing("b", 2, 4)}, ResourceVersion: "10"}}})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 15), thing("c", 3, 12)}, ResourceVersion: "20"}}})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("c", 3, 21)}})
		for _, version := range []uint64{11, 12, 15, 19} {
			if _, ok := subscriber.Resume(ix, version, subscriber.Options{}); ok {
				t.Errorf("a subscriber resumes at version %d, within a relist from 10 to 20", version)
			}
		}
		for version, want := range map[uint64]int{10: 4, 20: 1} {
			f, ok := subscriber.Resume(ix, version, subscriber.Options{})
			if !ok {
				t.Fatalf("cannot resume at %d", version)
			}
			if delivered := follow(t, f); len(delivered) != want {
				t.Errorf("from %d on, delivered %q", version, delivered)
			}
		}
	})
}
