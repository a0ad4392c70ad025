package indexer_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"weak"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// keys are the names that a view has objects under.
func keys(ix *indexer.Indexer[*meta]) []string {
	view := ix.Pin()
	defer view.Release()
	var names []string
	for key := range view.All() {
		names = append(names, key)
	}
	return names
}

// events are the events from a position on.
func events(at *changelog.Position[indexer.Event[*meta]]) []string {
	var out []string
	for b := at.Next(); b != nil; b = b.End.Next() {
		for _, e := range b.Events {
			out = append(out, fmt.Sprintf("%d %s", e.Type, e.Object.Name))
		}
	}
	return out
}

func TestQuietDeltasChangeTheStoreWithoutEvents(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	if err := ix.AddIndex("third", byThird); err != nil {
		t.Fatal(err)
	}
	view := ix.PinCursor()
	at := view.Tail()
	view.Release()
	a, b, c := thing("", "a", 1, 1), thing("", "b", 2, 2), thing("", "c", 3, 3)

	ix.Apply([]delta.Delta[*meta]{
		{Type: delta.Added, Object: a, Quiet: true},
		{Type: delta.Added, Object: b},
		{Type: delta.Added, Object: c, Quiet: true},
		{Type: delta.Deleted, Object: a, Quiet: true},
	})
	if got := keys(ix); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the store holds %v", got)
	}
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{a, c}, ResourceVersion: "9"}, Quiet: true}})
	if got := keys(ix); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("after a quiet list the store holds %v", got)
	}
	view = ix.PinCursor()
	if view.Synced {
		t.Error("a quiet list synced the store")
	}
	if n := view.IndexedCount("third", "1", 9); n != 1 {
		t.Errorf("the index finds %d objects, not a alone", n)
	}
	view.Release()
	if got := events(at); !slices.Equal(got, []string{"1 b"}) {
		t.Errorf("the log has %v", got)
	}
}

func TestAPinnedViewDoesNotSeeQuietDeltas(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("", "a", 1, 1)}})
	view := ix.Pin()
	defer view.Release()
	for version := 2; version < 5; version++ {
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("", "a", 1, version), Quiet: true}})
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("", "b", 2, version), Quiet: true}})
	}
	if o, _ := ix.Get("a"); o.ResourceVersion != "4" {
		t.Errorf("Get does not find the newest version but %s", o.ResourceVersion)
	}
	if o, ok := view.Get("a"); !ok || o.ResourceVersion != "1" || view.Len() != 1 {
		t.Errorf("the view holds %d objects, a at %v", view.Len(), o)
	}
	if err := ix.AddIndex("third", byThird); err != nil {
		t.Fatal(err)
	}
	if got := keys(ix); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the newest view holds %v", got)
	}
}

func TestALiteralStoreBelievesTheSource(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{Literal: true})
	view := ix.PinCursor()
	at := view.Tail()
	view.Release()
	a, b := thing("", "a", 1, 1), thing("", "b", 2, 2)
	ix.Apply([]delta.Delta[*meta]{
		{Type: delta.Updated, Object: a},
		{Type: delta.Sync},
		{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{a}, ResourceVersion: "3"}},
		{Type: delta.Deleted, Object: b},
	})
	if got := events(at); !slices.Equal(got, []string{"1 a", "3 b"}) {
		t.Errorf("the log has %v, want a added and b deleted", got)
	}
}

func TestQuietDeltasFreeWhatTheySupersede(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	if err := ix.AddIndex("third", byThird); err != nil {
		t.Fatal(err)
	}
	changed, deleted, held := thing("", "a", 1, 1), thing("", "b", 2, 1), thing("", "c", 3, 1)
	gone := []weak.Pointer[meta]{weak.Make(changed), weak.Make(deleted)}
	kept := weak.Make(held)
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{changed, deleted, held}, ResourceVersion: "1"}}})
	view := ix.Pin()
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Deleted, Object: thing("", "b", 2, 2), Quiet: true}})
	if _, ok := view.Get("b"); !ok {
		t.Error("a pinned view lost an object to a quiet change")
	}
	view.Release()
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("", "a", 1, 2), Quiet: true}})
	changed, deleted, held = nil, nil, nil
	runtime.GC() // no view was pinned since
	for i, p := range gone {
		if p.Value() != nil {
			t.Errorf("the superseded object %d is still held", i)
		}
	}
	if kept.Value() == nil {
		t.Error("the store lost an object")
	}
	if got := keys(ix); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("the store holds %v", got)
	}
	runtime.KeepAlive(ix)
}

// TestQuietWritersAndReaders is for the race detector. It also checks that readers
// see consistent states: the writer changes two objects together.
func TestQuietWritersAndReaders(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				view := ix.Pin()
				a, okA := view.Get("a")
				b, okB := view.Get("b")
				if okA != okB || okA && a.ResourceVersion != b.ResourceVersion {
					t.Errorf("a view has a: %v %v, b: %v %v", okA, a, okB, b)
				}
				n := 0
				for range view.All() {
					n++
				}
				if n != view.Len() {
					t.Errorf("a view of %d objects lists %d", view.Len(), n)
				}
				view.Release()
			}
		})
	}
	for version := 1; version < 3000; version++ {
		kind := delta.Updated
		if version%3 == 0 {
			kind = delta.Deleted
		}
		ix.Apply([]delta.Delta[*meta]{
			{Type: kind, Object: thing("", "a", 1, version), Quiet: true},
			{Type: kind, Object: thing("", "b", 2, version), Quiet: version%5 != 0},
		})
	}
	close(done)
	readers.Wait()
}
