package churn

import (
	"context"
	"sync"
)

// meeting is where goroutines wait for each other, to do what concerns all of
// them.
type meeting struct {
	all int

	mu      sync.Mutex
	arrived int
	over    *outcome // of those who have arrived
}

type outcome struct {
	done chan struct{}
	err  error
}

func newMeeting(all int) *meeting {
	return &meeting{all: all, over: &outcome{done: make(chan struct{})}}
}

// do returns when all have called it and the last of them has done what it came
// to do, with its error.
func (m *meeting) do(ctx context.Context, what func(context.Context) error) error {
	m.mu.Lock()
	over := m.over
	m.arrived++
	last := m.arrived == m.all
	if last {
		m.arrived, m.over = 0, &outcome{done: make(chan struct{})}
	}
	m.mu.Unlock()
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
