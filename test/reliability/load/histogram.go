package load

import (
	"math"
	"sync/atomic"
	"time"
)

// histogram counts durations, in steps of 5 %. Any number of goroutines may add.
type histogram struct {
	counts [400]atomic.Uint64
	n      atomic.Uint64
	most   atomic.Int64
}

const growth = 1.05

func (h *histogram) add(d time.Duration) {
	i := 0
	if us := float64(d) / float64(time.Microsecond); us > 1 {
		i = min(int(math.Log(us)/math.Log(growth)), len(h.counts)-1)
	}
	h.counts[i].Add(1)
	h.n.Add(1)
	for {
		most := h.most.Load()
		if int64(d) <= most || h.most.CompareAndSwap(most, int64(d)) {
			return
		}
	}
}

// quantile returns the duration that a part of all did not exceed.
func (h *histogram) quantile(q float64) time.Duration {
	n := h.n.Load()
	if n == 0 {
		return 0
	}
	left := uint64(math.Ceil(q * float64(n)))
	for i := range h.counts {
		c := h.counts[i].Load()
		if c >= left {
			return min(time.Duration(math.Pow(growth, float64(i+1))*float64(time.Microsecond)), h.max())
		}
		left -= c
	}
	return h.max()
}

func (h *histogram) max() time.Duration { return time.Duration(h.most.Load()) }
