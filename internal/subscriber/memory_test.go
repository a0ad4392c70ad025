package subscriber_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// TestFoldingBoundsMemory checks that events that were folded away are garbage, no
// matter how long the subscriber is stuck, in the initial list or after it.
func TestFoldingBoundsMemory(t *testing.T) {
	for name, stuckAt := range map[string]int{"initial list": 1, "changes": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ix := indexer.New(indexer.Options[*meta]{})
				ix.Apply([]delta.Delta[*meta]{{Type: delta.Replaced, List: &delta.List[*meta]{Items: []*meta{thing("a", 1, 1), thing("b", 2, 2)}, ResourceVersion: "2"}}})
				f := subscriber.Subscribe(ix, subscriber.Options{Fold: 2})
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
				var middle weak.Pointer[meta]
				for v := 10; v < 100; v++ {
					o := thing("a", 1, v)
					if v == 50 {
						middle = weak.Make(o)
					}
					ix.Apply([]delta.Delta[*meta]{{Type: delta.Updated, Object: o}})
					synctest.Wait()
				}
				runtime.GC()
				if middle.Value() != nil {
					t.Error("a version that will never be delivered is still held")
				}
				if s := f.Status(); s.Lag < 80 || s.Backlog > 4 {
					t.Errorf("the status is %+v", s)
				}
				close(gate)
				synctest.Wait()
				if s := f.Status(); s.Lag != 0 || s.Backlog != 0 {
					t.Errorf("caught up, the status is %+v", s)
				}
				cancel()
				<-done
				f.Release()
				runtime.KeepAlive(ix)
			})
		})
	}
}
