// Package broadcast wakes any number of goroutines that wait for the same
// change.
package broadcast

import "sync/atomic"

// Signal is a channel that is closed to wake every waiter and then replaced.
// The channel is made when somebody waits, so a Signal without waiters costs
// nothing. The zero value is ready to use. A Signal is safe for concurrent use
// and must not be copied after first use.
//
// A waiter calls [Signal.Next] first, then checks the condition, then waits.
// A notifier changes the condition first, then calls [Signal.Notify].
type Signal struct {
	ch atomic.Pointer[chan struct{}]
}

// Next returns a channel that the next call of Notify closes.
func (s *Signal) Next() <-chan struct{} {
	if ch := s.ch.Load(); ch != nil {
		return *ch
	}
	made := make(chan struct{})
	for {
		if s.ch.CompareAndSwap(nil, &made) {
			return made
		}
		if ch := s.ch.Load(); ch != nil {
			return *ch
		}
	}
}

// Notify wakes everyone who waits on a channel that Next has returned.
func (s *Signal) Notify() {
	// Load first: without waiters this is no locked instruction.
	if s.ch.Load() == nil {
		return
	}
	if ch := s.ch.Swap(nil); ch != nil {
		close(*ch)
	}
}
