package processor_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/processor"
)

var synced = strconv.Itoa(int(processor.Synced))

// follow runs a follower until it waits for news, and returns what it was told.
func follow(t *testing.T, f *processor.Follower[*meta]) (told []string) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Run(ctx, false, func(e processor.Event[*meta]) bool {
			s := fmt.Sprintf("%d@%d", e.Type, e.ResourceVersion)
			if e.Object != nil {
				s = fmt.Sprintf("%d %s@%d", e.Type, e.Object.Name, e.ResourceVersion)
			}
			if e.Resumable {
				s += " resumable"
			}
			told = append(told, s)
			return true
		})
	}()
	synctest.Wait()
	cancel()
	<-done
	f.Release()
	return told
}

// TestResumeAndFold: what a follower that comes back has seen is not folded
// into what it has not seen.
func TestResumeAndFold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 100})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "10"}}})
		ix.Apply([]delta.Delta[*meta]{ // one batch
			{Type: delta.Added, Object: thing("a", 1, 11)}, {Type: delta.Added, Object: thing("b", 2, 12)},
			{Type: delta.Deleted, Object: thing("a", 1, 13)}, {Type: delta.Added, Object: thing("a", 3, 14)},
			{Type: delta.Updated, Object: thing("b", 2, 15)},
		})
		f, ok := processor.Resume(ix, 11, processor.Options{Fold: 2}) // it knows a
		if !ok {
			t.Fatal("cannot resume")
		}
		if told, want := follow(t, f), []string{"3 a@13", "1 a@14", "1 b@15 resumable"}; !slices.Equal(told, want) {
			t.Errorf("told %q, not %q", told, want)
		}
	})
}

// TestResumable: a version to resume from is one of which the follower has been
// told the whole state.
func TestResumable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ix := indexer.New(indexer.Options[*meta]{Retain: 100})
		early, folding := processor.Follow(ix, processor.Options{}), processor.Follow(ix, processor.Options{Fold: 1})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 3), thing("b", 2, 4)}, ResourceVersion: "10"}}})
		ix.Apply([]delta.Delta[*meta]{
			{Type: delta.Added, Object: thing("short", 3, 11)}, {Type: delta.Updated, Object: thing("a", 1, 12)},
			{Type: delta.Deleted, Object: thing("short", 3, 13)},
		})
		want := []string{"1 a@10", "1 b@10 resumable", synced + "@10 resumable", "1 short@11 resumable", "2 a@12 resumable", "3 short@13 resumable"}
		if told := follow(t, early); !slices.Equal(told, want) {
			t.Errorf("told\n%q, not\n%q", told, want)
		}
		// The state of 12 has an object that this one is never told of.
		want = []string{"1 b@10", "1 a@12", synced + "@13 resumable"}
		if told := follow(t, folding); !slices.Equal(told, want) {
			t.Errorf("told\n%q, not\n%q", told, want)
		}
		// An emptied store is in no state that its source ever had.
		late := processor.Follow(ix, processor.Options{})
		ix.Empty()
		want = []string{"1 a@13", "1 b@13", synced + "@13 resumable", "3 a@13", "3 b@13"}
		if told := follow(t, late); !slices.Equal(told, want) {
			t.Errorf("told\n%q, not\n%q", told, want)
		}
	})
}

// TestResumeWithinAList: who has been told part of what a list has brought to light
// by a server that tells it by versions, and comes back with the version of the
// last of it, is told the rest.
func TestResumeWithinAList(t *testing.T) {
	for _, fold := range []int{0, 1, 100} {
		t.Run(fmt.Sprint("fold ", fold), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ix := indexer.New(indexer.Options[*meta]{Retain: 100})
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 3), thing("b", 2, 4), thing("c", 3, 5), thing("d", 4, 6)}, ResourceVersion: "10"}}})
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{
					thing("a", 1, 15), thing("b", 9, 12), thing("c", 8, 16), thing("e", 5, 11), thing("f", 6, 14),
				}, ResourceVersion: "20"}}})
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("e", 5, 21)}})
				f, ok := processor.Resume(ix, 14, processor.Options{Fold: fold})
				if !ok {
					t.Fatal("cannot resume")
				}
				want := []string{"3 d@20", "2 a@20", "3 c@20", "1 c@20 resumable", "2 e@21 resumable"}
				told := follow(t, f)
				if len(told) == len(want) && fold == 1 {
					told[3] = want[3] // whether it is depends on how much has been folded by then
				}
				if !slices.Equal(told, want) {
					t.Errorf("told\n%q, not\n%q", told, want)
				}
				// Who has what there was before the list is told all of it.
				f, ok = processor.Resume(ix, 10, processor.Options{})
				if !ok {
					t.Fatal("cannot resume")
				}
				if told := follow(t, f); len(told) != 9 {
					t.Errorf("told %q", told)
				}
			})
		})
	}
}
