package indexer_test

import (
	"runtime"
	"testing"
	"weak"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// TestPinnedViewHoldsItsStateOnly checks that a pinned view holds no later versions.
func TestPinnedViewHoldsItsStateOnly(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("n", "a", 1, 1)}, ResourceVersion: "1"}}})
	v := ix.Pin()
	var middle weak.Pointer[meta]
	for version := 2; version < 10; version++ {
		o := thing("n", "a", 1, version)
		if version == 5 {
			middle = weak.Make(o)
		}
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: o}})
	}
	runtime.GC()
	if middle.Value() != nil {
		t.Error("a version that no view sees is still held")
	}
	if o, ok := v.Get("n/a"); !ok || o.ResourceVersion != "1" {
		t.Errorf("the view holds %v", o)
	}
	v.Release()
	runtime.KeepAlive(ix)
}

// TestEmptiedStoreHoldsNothing checks that the objects of an emptied store are freed
// with the last reader, even if nothing is written any more.
func TestEmptiedStoreHoldsNothing(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		ix := indexer.New(indexer.Options[*meta]{})
		a, b := thing("n", "a", 1, 1), thing("n", "b", 2, 2)
		held := []weak.Pointer[meta]{weak.Make(a), weak.Make(b)}
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{a, b}, ResourceVersion: "1"}}})
		v := ix.Pin()
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("n", "a", 1, 3)}}) // not seen by the view
		if deleted {
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Deleted, Object: thing("n", "a", 1, 4)}})
		}
		ix.Empty()
		runtime.GC()
		if o, ok := v.Get("n/a"); !ok || o != a {
			t.Errorf("the view holds %v", o)
		}
		a, b = nil, nil
		v.Release()
		v = nil
		runtime.GC()
		for _, p := range held {
			if p.Value() != nil {
				t.Errorf("deleted before %v: %v is still held", deleted, p.Value())
			}
		}
		runtime.KeepAlive(ix)
	}
}

// TestReleasedViewsAreCut checks that versions that only released views saw are
// freed with the next write, in whatever order the views are released.
func TestReleasedViewsAreCut(t *testing.T) {
	for _, first := range []int{0, 1} {
		ix := indexer.New(indexer.Options[*meta]{})
		o := thing("n", "a", 1, 1)
		held := weak.Make(o)
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{o}, ResourceVersion: "1"}}})
		o = nil
		views := []*indexer.View[*meta]{ix.Pin()}
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("n", "b", 2, 2)}})
		views = append(views, ix.Pin()) // both see a
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("n", "a", 1, 3)}})
		for _, i := range []int{first, 1 - first} {
			if held.Value() == nil {
				t.Error("a pinned version is gone")
			}
			views[i].Release()
			ix.Apply([]delta.Delta[*meta]{{Type: delta.Bookmark, List: &delta.List[*meta]{ResourceVersion: "4"}}})
			runtime.GC()
		}
		clear(views)
		runtime.GC()
		if held.Value() != nil || ix.Stats().Pinned != 0 {
			t.Errorf("a version that no view sees is still held; %d views are pinned", ix.Stats().Pinned)
		}
		runtime.KeepAlive(ix)
	}
}
