package indexer_test

import (
	"strconv"
	"testing"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
)

// TestVersionsOnlyGoForward checks that nothing but a list moves the store's version
// back.
func TestVersionsOnlyGoForward(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{ResourceVersion: "10"}}})
	for _, d := range []delta.Delta[*meta]{
		{Type: delta.Bookmark, List: &delta.List[*meta]{ResourceVersion: "9"}},
		{Type: delta.Added, Object: thing("a", "x", 1, 8)},
		{Type: delta.Updated, Object: thing("a", "x", 1, 9)},
		{Type: delta.Deleted, Object: thing("a", "x", 1, 9)},
	} {
		ix.Apply([]delta.Delta[*meta]{d})
		if v := ix.Latest().ResourceVersion; v != 10 {
			t.Errorf("after a delta of type %d the version is %d", d.Type, v)
		}
	}
}

// TestTheViewIsPublishedBeforeItsEvents has a reader that reads the store as soon as
// it sees a change in the log.
func TestTheViewIsPublishedBeforeItsEvents(t *testing.T) {
	ix := indexer.New(indexer.Options[*meta]{})
	const changes = 10_000
	at := ix.Latest().Tail()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; n <= changes; {
			next := at.Next()
			if next == nil {
				continue
			}
			if now := ix.Latest(); now.Tail().Seq < next.End.Seq || now.ResourceVersion < next.End.ResourceVersion {
				t.Errorf("the log is at %d, the store at %d", next.End.ResourceVersion, now.ResourceVersion)
				return
			}
			n += len(next.Events)
			at = next.End
		}
	}()
	for n := 1; n <= changes; n++ {
		ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: thing("a", strconv.Itoa(n%7), 1, n)}})
	}
	<-done
}
