package churn

import (
	"context"
	"sync"
)

// barrier makes goroutines wait for each other, to do something that affects
// all of them.
type barrier struct {
	all int

	mu      sync.Mutex
	arrived int
	over    *outcome // of the goroutines that have arrived
}

type outcome struct {
	done chan struct{}
	err  error
}

func newBarrier(all int) *barrier {
	return &barrier{all: all, over: &outcome{done: make(chan struct{})}}
}

// do returns when all goroutines have called it and the last caller's function
// has run. It returns the error of that function.
func (b *barrier) do(ctx context.Context, what func(context.Context) error) error {
	b.mu.Lock()
	over := b.over
	b.arrived++
	last := b.arrived == b.all
	if last {
		b.arrived, b.over = 0, &outcome{done: make(chan struct{})}
	}
	b.mu.Unlock()
	if last {
		over.err = what(ctx)
		close(over.done)
	}
	select {
	case <-over.done:
		return over.err
	case <-ctx.Done():
		return ctx.Err()
	}
}
