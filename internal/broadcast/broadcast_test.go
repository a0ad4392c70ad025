package broadcast_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tidings-io/tidings/internal/broadcast"
)

func TestNotifyClosesTheChannelOnce(t *testing.T) {
	var s broadcast.Signal
	s.Notify() // nobody waits
	first := s.Next()
	if s.Next() != first {
		t.Error("two waiters get different channels")
	}
	select {
	case <-first:
		t.Fatal("closed before Notify")
	default:
	}
	s.Notify()
	s.Notify()
	<-first
	select {
	case <-s.Next():
		t.Fatal("the next channel is closed before the next Notify")
	default:
	}
}

// TestNoWaiterMissesAChange hangs if a waiter that takes the channel before it
// checks the condition is not woken by a change of the condition.
func TestNoWaiterMissesAChange(t *testing.T) {
	var (
		s     broadcast.Signal
		value atomic.Int64
		all   sync.WaitGroup
	)
	const last = 1000
	for range 8 {
		all.Go(func() {
			for {
				next := s.Next()
				if value.Load() == last {
					return
				}
				<-next
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range last / 2 {
				value.Add(1)
				s.Notify()
			}
		})
	}
	all.Wait()
}
