package read

import (
	"context"
	"sync"
	"time"
)

// batch makes one call for all waiting callers. Each caller gets the answer of a call
// that began after the caller came: the answer of a call in progress may be too old, so
// the caller waits for the next call, together with all others that have come since.
// There is one call at a time, however many callers wait.
type batch[T any] struct {
	// call makes the call, with ctx, which ends with the informer.
	call func(context.Context) (T, error)
	ctx  context.Context

	mu      sync.Mutex
	next    *call[T]
	running bool
}

type call[T any] struct {
	waiting int // under batch.mu, until the call begins
	done    chan struct{}
	answer  T
	err     error
}

// do returns the answer of the next call.
func (r *batch[T]) do(ctx context.Context) (T, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &call[T]{done: make(chan struct{})}
	}
	mine := r.next
	mine.waiting++
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.answer, mine.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}

// Callers that got an answer together are likely to come again together. After a call
// with more than gatherFrom callers, the next call waits for them, for maxGather at most.
// Otherwise the first of them would get a call of its own, and all others the next.
const (
	gatherFrom = 4
	maxGather  = time.Millisecond
)

// run makes calls as long as callers wait.
func (r *batch[T]) run() {
	for {
		r.mu.Lock()
		now := r.next
		r.next = nil
		if now == nil {
			r.running = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		begun := time.Now()
		now.answer, now.err = r.call(r.ctx)
		close(now.done)
		if now.waiting > gatherFrom {
			select {
			case <-time.After(min(time.Since(begun)/2, maxGather)):
			case <-r.ctx.Done():
			}
		}
	}
}

// batches has a batch for each key.
type batches[K comparable, T any] struct {
	call func(ctx context.Context, key K) (T, error)
	ctx  context.Context
	max  int // of keys at a time

	mu      sync.Mutex
	pending map[K]*keyedBatch[T]
}

type keyedBatch[T any] struct {
	batch[T]
	waiting int // under batches.mu
	end     context.CancelFunc
}

// do returns the answer of the next call for a key, or errBusy if there are calls for
// too many other keys.
func (q *batches[K, T]) do(ctx context.Context, key K) (T, error) {
	q.mu.Lock()
	mine := q.pending[key]
	if mine == nil {
		if len(q.pending) >= q.max {
			q.mu.Unlock()
			var none T
			return none, errBusy
		}
		ctx, end := context.WithCancel(q.ctx)
		mine = &keyedBatch[T]{end: end, batch: batch[T]{ctx: ctx, call: func(ctx context.Context) (T, error) { return q.call(ctx, key) }}}
		if q.pending == nil {
			q.pending = map[K]*keyedBatch[T]{}
		}
		q.pending[key] = mine
	}
	mine.waiting++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if mine.waiting--; mine.waiting == 0 {
			delete(q.pending, key)
			mine.end() // no caller waits any more
		}
	}()
	return mine.do(ctx)
}
