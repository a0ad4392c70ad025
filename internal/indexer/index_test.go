package indexer_test

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// TestAnIndexKeepsNoMemoryOfOldVersions checks that an index does not keep the
// memory that its values come from, which may be large encodings of objects.
func TestAnIndexKeepsNoMemoryOfOldVersions(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	values := map[*meta]string{}
	if err := ix.AddIndex("value", func(out []string, m *meta) []string { return append(out, values[m]) }); err != nil {
		t.Fatal(err)
	}
	first, second := thing("", "a", 1, 1), thing("", "a", 1, 2)
	encoding := append(make([]byte, 0, 1<<20), "value"...)
	gone := weak.Make(unsafe.SliceData(encoding))
	values[first], values[second] = unsafe.String(unsafe.SliceData(encoding), len(encoding)), "value"
	encoding = nil

	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: first}})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: second}})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("", "b", 2, 3)}, {Type: delta.Updated, Object: thing("", "b", 2, 4)}})
	clear(values)
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the encoding of a superseded version is still held")
	}
	view := ix.Pin()
	defer view.Release()
	if n := view.IndexedCount("value", "value", 10); n != 1 {
		t.Errorf("%d objects are found", n)
	}
}

// TestDropIndex checks that a dropped index is missing from new views, stays in those
// pinned before, and does not affect other indexes.
func TestDropIndex(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	by := func(name string) func([]string, *meta) []string {
		return func(out []string, m *meta) []string { return append(out, name+m.GetName()) }
	}
	for _, name := range []string{"one", "two", "three"} {
		if err := ix.AddIndex(name, by(name)); err != nil {
			t.Fatal(err)
		}
	}
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("", "a", 1, 1)}})
	before := ix.Pin()
	defer before.Release()
	ix.DropIndex("one")
	ix.DropIndex("nothing")
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Added, Object: thing("", "b", 2, 2)}})
	after := ix.Pin()
	defer after.Release()
	for _, c := range []struct {
		view         *indexer.View[*meta]
		index, value string
		want         int
	}{
		{before, "one", "onea", 1}, {before, "two", "twoa", 1}, {before, "three", "threeb", 0},
		{after, "one", "onea", 0}, {after, "two", "twoa", 1}, {after, "two", "twob", 1}, {after, "three", "threea", 1}, {after, "three", "threeb", 1},
	} {
		if n := c.view.IndexedCount(c.index, c.value, 10); n != c.want {
			t.Errorf("%s: %d objects under %s, want %d", c.index, n, c.value, c.want)
		}
	}
	if after.HasIndex("one") || !before.HasIndex("one") {
		t.Error("the index is not where it should be")
	}
	if err := ix.AddIndex("one", by("one")); err != nil {
		t.Fatal(err)
	}
	again := ix.Pin()
	defer again.Release()
	if n := again.IndexedCount("one", "oneb", 10); n != 1 {
		t.Errorf("%d objects in an index that was added again", n)
	}
}
