// Package delta holds the queue between a reflector and an indexer: what
// client-go calls DeltaFIFO. The reflector pushes what it learnt, in order, and
// never waits; the indexer pops everything that has come since its last visit
// as one batch.
package delta

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"
)

// Type says what a delta means to the store.
type Type uint8

const (
	// Added, Updated: the object is now so. Which of the two the source said
	// does not matter to the store, which knows whether it held the object.
	Added Type = iota + 1
	Updated
	// Deleted: the object is gone; Object is its last state.
	Deleted
	// Replaced: Items is everything there is, at ResourceVersion. Objects that
	// are held but not among Items are gone, unseen.
	Replaced
	// Bookmark: nothing happened up to ResourceVersion.
	Bookmark
	// Vanished: the resource itself is no longer served. There are no objects,
	// and there is no complete list of them either.
	Vanished
	// Sync: followers that ask for it are to be told again of everything there
	// is. Whoever pops the queue sees to that; the store has nothing to do.
	Sync
)

// Delta is one thing a reflector learnt. It is small, since there is one for
// each event that waits.
type Delta[T any] struct {
	Object T
	// List is set for Replaced, Bookmark and Vanished, which are not of one
	// object.
	List *List[T]
	Type Type
	// Quiet changes the store and tells nobody: followers of the log will not
	// see the change, and a quiet Replaced is no list that a store is synced by.
	// It is for writes by others than the source.
	Quiet bool
}

// List is a state of a scope.
type List[T any] struct {
	// Items of Replaced.
	Items []T
	// ResourceVersion of Replaced and Bookmark. Objects carry their own.
	ResourceVersion string
	// Namespace is what is spoken of, if the store has its namespaces listed and
	// watched one by one; empty for all of it.
	Namespace string
}

// ErrClosed is returned by [Queue.Pop] once the queue is closed and empty.
var ErrClosed = errors.New("delta queue is closed")

// Queue is an unbounded first-in-first-out queue of deltas. It is safe for any
// number of pushers and one popper. Its length is bounded in practice by the
// indexer, which runs no user code and so cannot be slow.
type Queue[T any] struct {
	mu      sync.Mutex
	items   []Delta[T]
	popped  []Delta[T] // the batch popped last, whose memory serves again
	idle    int        // batches in a row that needed little of it
	waiting bool       // the popper looks again when it is woken
	closed  bool
	wake    chan struct{} // capacity 1: a token means "look again"
}

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] {
	return &Queue[T]{wake: make(chan struct{}, 1)}
}

// A source in this very process can be much quicker than the store, and what
// waits costs memory, and more time the colder it is when its turn comes. Who
// pushes while plenty of deltas wait pauses, so that the popper gets on.
const (
	plenty = 4096
	pause  = 100 * time.Microsecond
)

// Push appends deltas and returns how many are queued now. It does not wait for
// the popper, but takes its time when much is queued. After Close it does nothing.
func (q *Queue[T]) Push(deltas ...Delta[T]) (queued int) {
	q.mu.Lock()
	if !q.closed {
		q.items = append(q.items, deltas...)
	}
	waiting, queued := q.waiting, len(q.items)
	q.waiting = false
	q.mu.Unlock()
	if waiting {
		q.signal()
	}
	if queued >= plenty {
		if runtime.Gosched(); q.Len() >= plenty {
			time.Sleep(pause)
		}
	}
	return queued
}

// A queue keeps the room it has come to need. Room for more than this many deltas
// is given up when several batches in a row have needed a quarter of it or less.
const (
	spacious = 256
	patience = 64
)

// Pop returns all queued deltas, oldest first, waiting until there is one. The
// slice is valid until the next call of Pop, which lets go of what is in it. The
// error is the context's, or [ErrClosed] when the queue is closed and everything
// has been popped.
func (q *Queue[T]) Pop(ctx context.Context) ([]Delta[T], error) {
	clear(q.popped)
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			free := q.popped[:0]
			if q.idle++; cap(free) <= spacious || len(q.items) > cap(free)/4 {
				q.idle = 0
			} else if q.idle > patience {
				free = nil
			}
			q.popped, q.items = q.items, free
			q.mu.Unlock()
			return q.popped, nil
		}
		q.waiting = true
		closed := q.closed
		q.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		select {
		case <-q.wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Len is the number of deltas waiting.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Close lets the popper take what is queued and then end.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

func (q *Queue[T]) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}
