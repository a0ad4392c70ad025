package processor_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/processor"
)

// drained runs a follower until it knows everything, and returns what it was
// told.
func drained(f *processor.Follower[*meta]) []string {
	var told []string
	f.Run(context.Background(), true, func(e processor.Event[*meta]) bool {
		if e.Type != processor.Synced {
			told = append(told, fmt.Sprintf("%d %s@%s", e.Type, e.Object.Name, e.Object.ResourceVersion))
		}
		return true
	})
	return told
}

func expect(t *testing.T, f *processor.Follower[*meta], want ...string) {
	t.Helper()
	if got := drained(f); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestResyncOnDemand(t *testing.T) {
	for _, fold := range []int{0, 2} {
		t.Run(fmt.Sprint("fold=", fold), func(t *testing.T) {
			ix := indexer.New(indexer.Options[*meta]{})
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "2", Items: []*meta{thing("a", 1, 1), thing("b", 2, 2)}}}})
			f := processor.Follow(ix, processor.Options{Fold: fold})
			defer f.Release()
			f.Resync() // before the initial list has been told
			expect(t, f, "1 a@1", "1 b@2", "4 a@1", "4 b@2")

			f.Resync()
			f.Resync() // one is enough
			if fold == 0 {
				// What happens after the request is told after the state it pinned.
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("a", 1, 3)}})
				expect(t, f, "4 a@1", "4 b@2", "2 a@3")
			} else {
				expect(t, f, "4 a@1", "4 b@2")
			}
			expect(t, f)
		})
	}
}

func TestReleaseLetsGoOfARequestedResync(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	f := processor.Follow(ix, processor.Options{})
	f.Resync()
	f.Release()
	f.Resync() // too late, and nothing may be held by it
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("a", 1, 1)}})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("b", 2, 2)}})
	if n := ix.Stats().Pinned; n != 0 {
		t.Errorf("%d views are still pinned", n)
	}
}

func TestNewsOnlyLeavesOutWhatThereIs(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("a", 1, 1)}})
	f := processor.Follow(ix, processor.Options{News: true})
	defer f.Release()
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("b", 2, 2)}, {Type: delta.Added, Object: thing("c", 3, 3)}})
	var places []uint64
	f.Run(context.Background(), true, func(e processor.Event[*meta]) bool {
		places = append(places, e.Seq)
		return true
	})
	if !slices.Equal(places, []uint64{1, 2}) {
		t.Errorf("told of the changes %v, want those after the first", places)
	}
}
