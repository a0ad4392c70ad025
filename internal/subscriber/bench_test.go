package subscriber_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// BenchmarkFanOut moves updates of 10,000 objects through the delta queue, the
// store and the log to some subscribers. An op is one event, delivered to all of
// them.
func BenchmarkFanOut(b *testing.B) {
	for _, subscribers := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(subscribers), func(b *testing.B) {
			const objects = 10_000
			ix := indexer.New(indexer.Options[*meta]{})
			queue := delta.NewQueue[*meta]()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					deltas, err := queue.Pop(ctx)
					if err != nil {
						return
					}
					ix.Apply(deltas)
				}
			})
			updates := make([]*meta, b.N)
			for i := range updates {
				updates[i] = thing(strconv.Itoa(i%objects), i%objects, i+1)
			}
			var finished sync.WaitGroup
			for range subscribers {
				finished.Add(1)
				f := subscriber.Subscribe(ix, subscriber.Options{})
				n := 0
				wg.Go(func() {
					f.Run(ctx, false, func(e subscriber.Event[*meta]) bool {
						if n++; n == b.N {
							finished.Done()
						}
						return true
					})
					f.Release()
				})
			}
			b.ReportAllocs()
			b.ResetTimer()
			for _, o := range updates {
				queue.Push(delta.Delta[*meta]{Type: delta.Updated, Object: o})
			}
			finished.Wait()
			b.StopTimer()
			cancel()
			wg.Wait()
		})
	}
}
