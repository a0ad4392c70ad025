package subscriber_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// drained runs a subscriber until it has caught up, and returns what it delivered.
func drained(f *subscriber.Subscriber[*meta]) []string {
	var delivered []string
	f.Run(context.Background(), true, func(e subscriber.Event[*meta]) bool {
		if e.Type != subscriber.Synced {
			delivered = append(delivered, fmt.Sprintf("%d %s@%s", e.Type, e.Object.Name, e.Object.ResourceVersion))
		}
		return true
	})
	return delivered
}

func expect(t *testing.T, f *subscriber.Subscriber[*meta], want ...string) {
	t.Helper()
	if got := drained(f); !slices.Equal(got, want) {
		t.Errorf("delivered %q, want %q", got, want)
	}
}

func TestResyncOnDemand(t *testing.T) {
	for _, fold := range []int{0, 2} {
		t.Run(fmt.Sprint("fold=", fold), func(t *testing.T) {
			ix := indexer.New(indexer.Options[*meta]{})
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "2", Items: []*meta{thing("a", 1, 1), thing("b", 2, 2)}}}})
			f := subscriber.Subscribe(ix, subscriber.Options{Fold: fold})
			defer f.Release()
			f.Resync() // before the initial list was delivered
			expect(t, f, "1 a@1", "1 b@2", "4 a@1", "4 b@2")

			f.Resync()
			f.Resync() // one is enough
			if fold == 0 {
				// Later changes are delivered after the state that Resync pinned.
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("a", 1, 3)}})
				expect(t, f, "4 a@1", "4 b@2", "2 a@3")
			} else {
				expect(t, f, "4 a@1", "4 b@2")
			}
			expect(t, f)
		})
	}
}

func TestReleaseReleasesARequestedResync(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	f := subscriber.Subscribe(ix, subscriber.Options{})
	f.Resync()
	f.Release()
	f.Resync() // too late: it must not pin anything
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("a", 1, 1)}})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("b", 2, 2)}})
	if n := ix.Stats().Pinned; n != 0 {
		t.Errorf("%d views are still pinned", n)
	}
}

func TestSkipInitial(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("a", 1, 1)}})
	f := subscriber.Subscribe(ix, subscriber.Options{SkipInitial: true})
	defer f.Release()
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("b", 2, 2)}, {Type: delta.Added, Object: thing("c", 3, 3)}})
	var seqs []uint64
	f.Run(context.Background(), true, func(e subscriber.Event[*meta]) bool {
		seqs = append(seqs, e.Seq)
		return true
	})
	if !slices.Equal(seqs, []uint64{1, 2}) {
		t.Errorf("the events have Seq %v, want those after the first", seqs)
	}
}
