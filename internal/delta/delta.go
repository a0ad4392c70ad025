// Package delta implements the queue between a reflector and an indexer, the
// equivalent of client-go's DeltaFIFO. The reflector pushes deltas in order and
// does not wait for the indexer. The indexer pops everything queued since its
// last call as one batch.
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
	// Added and Updated carry the new state of an object. The store does not
	// rely on which of the two the source sent: it knows whether it held the
	// object.
	Added Type = iota + 1
	Updated
	// Deleted carries the last state of an object that no longer exists.
	Deleted
	// Replaced carries a complete list: Items at ResourceVersion. Objects that
	// are in the store but not in Items have been deleted, unseen.
	Replaced
	// Bookmark says that nothing happened up to ResourceVersion.
	Bookmark
	// Vanished says that the resource is no longer served. There are no objects,
	// and no complete list either.
	Vanished
	// Sync asks for a resync of the subscribers that want one. The code that
	// pops the queue handles it; the store ignores it.
	Sync
)

// Delta is one change that a reflector received. It is kept small, since one
// exists for each queued event.
type Delta[T any] struct {
	Object T
	// List is set for Replaced, Bookmark and Vanished, which do not concern a
	// single object.
	List *List[T]
	Type Type
	// Quiet deltas change the store without an event in the log. A quiet
	// Replaced does not make the store synced. Quiet is for writes that do not
	// come from the source.
	Quiet bool
}

// List is the state of a scope: one namespace or the whole store.
type List[T any] struct {
	// Items of Replaced.
	Items []T
	// ResourceVersion of Replaced and Bookmark. Objects carry their own.
	ResourceVersion string
	// Namespace is the scope, if the store's namespaces are listed and watched
	// one by one. It is empty for the whole store.
	Namespace string
}

// ErrClosed is returned by [Queue.Pop] once the queue is closed and empty.
var ErrClosed = errors.New("delta queue is closed")

// Queue is an unbounded FIFO queue of deltas. Any number of goroutines may push
// and one may pop. In practice the indexer bounds its length: it runs no user
// code, so it keeps up.
type Queue[T any] struct {
	mu       sync.Mutex
	items    []Delta[T]
	popped   []Delta[T] // the last batch popped; its memory is reused
	oversize int        // consecutive batches that used a quarter of it or less
	waiting  bool       // the popper waits for a token
	closed   bool
	wake     chan struct{} // capacity 1: a token means that there may be something to pop
}

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] {
	return &Queue[T]{wake: make(chan struct{}, 1)}
}

// A source in the same process can be much faster than the store. Queued deltas
// take memory, and more time the colder they are when they are popped. So Push
// pauses while highWater or more deltas are queued, to let the popper catch up.
const (
	highWater = 4096
	pause     = 100 * time.Microsecond
)

// Push appends deltas and returns the length of the queue. It never waits for
// the popper, but it pauses briefly when the queue is long. After Close it does
// nothing.
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
	if queued >= highWater {
		if runtime.Gosched(); q.Len() >= highWater {
			time.Sleep(pause)
		}
	}
	return queued
}

// A queue reuses its memory. It frees memory for more than minRetained deltas
// after more than maxOversize consecutive batches have used a quarter of it or
// less.
const (
	minRetained = 256
	maxOversize = 64
)

// Pop waits until the queue is not empty and returns all queued deltas, oldest
// first. The slice is valid until the next call of Pop, which clears it. Pop
// returns the context's cause if ctx ends, or [ErrClosed] once the queue is
// closed and empty.
func (q *Queue[T]) Pop(ctx context.Context) ([]Delta[T], error) {
	clear(q.popped)
	for {
		q.mu.Lock()
		if len(q.items) > 0 {
			free := q.popped[:0]
			if q.oversize++; cap(free) <= minRetained || len(q.items) > cap(free)/4 {
				q.oversize = 0
			} else if q.oversize > maxOversize {
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

// Len returns the number of queued deltas.
func (q *Queue[T]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.items)
}

// Close closes the queue. Pop still returns what is queued, then [ErrClosed].
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
