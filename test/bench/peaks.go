package main

import (
	"context"
	"fmt"
	"runtime/metrics"
	"sync"
	"time"
)

// peaks is how far the heap goes beyond what it comes to rest at: the largest sum
// of the bytes of objects, alive or not yet swept, seen by looking every
// millisecond, over what is alive when all is done and has been collected.
var peaks = line{
	name: "peaks",
	what: fmt.Sprintf("Peak of the heap over the settled heap: the first sync of %%d pods, and a relist with one in %d changed", oneIn),
	size: 20_000, quick: 100,
	setup: serveReplay,
	claims: []claim{
		{6, "peak heap in the first sync of 20,000 pods, over the settled heap, typed", "first sync: peak ÷ settled", "tidings, typed", "", atMost(1.15)},
		{6, "peak heap in the first sync of 20,000 pods, over the settled heap, compact", "first sync: peak ÷ settled", "tidings, compact", "", atMost(1.15)},
		{6, "peak heap in a relist of 20,000 pods, over the settled heap, compact", "relist: peak ÷ settled", "tidings, compact", "", atMost(1.1)},
		{6, "peak heap in a relist of 20,000 pods, over the settled heap, typed", "relist: peak ÷ settled", "tidings, typed", "", atMost(1.1)},
	},
	sides: mirrors(func(ctx context.Context, size int, m relister) (figures, error) {
		first, err := peak(m.start)
		if err != nil {
			return nil, err
		}
		changing, err := m.changing(size)
		if err != nil {
			return nil, err
		}
		settled := heap()
		second, err := peak(func() error { return m.relist(ctx, size, changing) })
		if err != nil {
			return nil, err
		}
		resettled := heap()
		return figures{
			"settled MB":                 float64(settled) / (1 << 20),
			"first sync: peak ÷ settled": float64(first) / float64(settled),
			"relist: peak ÷ settled":     float64(second) / float64(resettled),
		}, m.changed(changing)
	}),
}

// peak is the largest heap seen while do runs.
func peak(do func() error) (uint64, error) {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var most uint64
	look := func() {
		metrics.Read(sample)
		most = max(most, sample[0].Value.Uint64())
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				look()
			case <-stop:
				return
			}
		}
	})
	err := do()
	close(stop)
	looking.Wait()
	look()
	return most, err
}
