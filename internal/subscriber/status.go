package subscriber

import (
	"time"

	"github.com/tidings-io/tidings/internal/object"
)

// Status is the progress of a subscriber.
type Status struct {
	Delivered uint64 // events delivered, with the one in progress; see countEvery
	Lag       uint64 // events of the store that were not delivered yet
	// Backlog is the number of events that wait to be delivered: the rest of the
	// initial list or a resync, and what is in the log. After folding it is less than
	// Lag.
	Backlog uint64
	Since   time.Time // when the oldest event of the backlog came; zero if there is none
	Folded  uint64    // events that were folded into others and will not be delivered
	Synced  bool      // the initial list was delivered
}

// part is what a subscriber is delivering: a batch or a view. The zero value is
// nothing.
type part[T object.Object] struct {
	base   uint64 // events delivered before it
	events int
	since  time.Time    // when its oldest event came
	end    *position[T] // of a batch: the part is delivered once it is the subscriber's position
	view   bool
}

// begin notes what is delivered from now on.
func (s *Subscriber[T]) begin(p part[T]) {
	s.publishCount()
	s.skip = 0
	p.base = s.count
	s.mu.Lock()
	s.part = p
	s.mu.Unlock()
}

// Status returns the subscriber's progress. It may be called at any time.
func (s *Subscriber[T]) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{Delivered: s.delivered.Load()}
	select {
	case <-s.hasSynced:
		status.Synced = true
	default:
	}
	at := s.position.Load()
	if at == nil {
		return status
	}
	var left uint64 // of the part
	if p := &s.part; p.view || p.end != nil && p.end != at {
		left = uint64(p.events) - min(status.Delivered-p.base, uint64(p.events))
		if left > 0 {
			status.Since = p.since
		}
		if !p.view {
			at = p.end
		}
	}
	// After at, because the tail is not older then.
	status.Lag = s.ix.Latest().Tail().Seq - at.Seq
	var waiting uint64
	var since time.Time
	if s.backlog == nil {
		waiting, since = status.Lag, arrival(at)
	} else {
		waiting, since, status.Folded = s.backlog.stats()
	}
	if !s.part.view {
		status.Lag += left
	}
	if status.Backlog = left + waiting; left == 0 && waiting > 0 {
		status.Since = since
	}
	return status
}

// arrival returns when the first event after a position came.
func arrival[T object.Object](at *position[T]) time.Time {
	for next := at.Next(); next != nil; next = next.End.Next() {
		if len(next.Events) > 0 {
			return next.End.At
		}
	}
	return time.Time{}
}

const (
	// countEvery is how often the count of delivered events is published while a fast
	// subscriber delivers many at once: to publish it at each event can take longer
	// than to deliver the event. It is a power of two.
	countEvery = 32
	// fast is the time for countEvery events below which a subscriber is fast. The
	// published count of a slower one is exact.
	fast = time.Millisecond
)

// addDelivered counts an event just before it is delivered.
func (s *Subscriber[T]) addDelivered() {
	if s.count++; s.count&s.skip == 0 {
		s.publishCount()
	}
}

// publishCount publishes the count for Status, and measures the pace.
func (s *Subscriber[T]) publishCount() {
	s.delivered.Store(s.count)
	if s.count%countEvery != 0 {
		return
	}
	now := time.Now()
	s.skip = 0
	if now.Sub(s.measured) < fast {
		s.skip = countEvery - 1
	}
	s.measured = now
}
