package indexer_test

import (
	"runtime"
	"testing"
	"unsafe"
	"weak"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// The values of an index may be parts of large encodings. Those go with the
// versions of objects that they came with.
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
		t.Error("the encoding of a version that is gone is kept")
	}
	view := ix.Pin()
	defer view.Release()
	if n := view.IndexedCount("value", "value", 10); n != 1 {
		t.Errorf("%d objects are found", n)
	}
}
