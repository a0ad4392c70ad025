package access

import (
	"context"
	"sync"
)

// flights are the questions under way, each for all that wait for its answer. One
// that nobody waits for any more is withdrawn, unless it has been sent.
type flights[V any] struct {
	mu    sync.Mutex
	under map[flightKey]*flight[V]
}

// flightKey has the payer, because a question waits for its place behind others
// of the same payer.
type flightKey struct {
	key   digest
	payer string
}

type flight[V any] struct {
	flightKey
	waiting  int // for the answer, under the lock of flights
	withdraw context.CancelFunc
	sent     chan struct{} // closed when the question has its place
	landed   chan struct{} // closed when there is an answer
	answer   answer[V]
}

// join waits for the answer to a question, which do finds out if no flight does.
// The context of do ends when the flight is withdrawn. Whoever joins is to leave.
func (s *flights[V]) join(ctx context.Context, key flightKey, do func(context.Context, *flight[V])) *flight[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.under[key]; f != nil {
		f.waiting++
		return f
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight[V]{flightKey: key, waiting: 1, withdraw: cancel, sent: make(chan struct{}), landed: make(chan struct{})}
	s.under[key] = f
	go func() {
		defer cancel()
		do(ctx, f)
		close(f.landed)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.forget(f)
	}()
	return f
}

func (s *flights[V]) leave(f *flight[V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	select {
	case <-f.sent: // the answer will be remembered
	default:
		f.withdraw()
		s.forget(f)
	}
}

func (s *flights[V]) forget(f *flight[V]) {
	if s.under[f.flightKey] == f {
		delete(s.under, f.flightKey)
	}
}
