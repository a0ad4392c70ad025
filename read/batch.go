package read

import (
	"context"
	"sync"
	"time"
)

// batch shares the answer to one call among all callers that wait for it. Each
// caller gets the answer to a call that began after the caller asked: a call that is
// under way already may be too old, so the caller waits for the next one, together
// with all that have come meanwhile. However many wait, one call at a time is made.
type batch[T any] struct {
	// ask makes the call. Its context ends with the informer.
	ask func(context.Context) (T, error)
	ctx context.Context

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

// Callers that had an answer together are likely to ask again together. The next
// call waits for such a crowd for a moment; else the first of them would have a call
// of its own, and all others the one after it.
const (
	crowd         = 4
	mostGathering = time.Millisecond
)

// run makes calls as long as somebody waits for one.
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
		now.answer, now.err = r.ask(r.ctx)
		close(now.done)
		if now.waiting > crowd {
			select {
			case <-time.After(min(time.Since(begun)/2, mostGathering)):
			case <-r.ctx.Done():
			}
		}
	}
}

// batches are many calls of a kind, batched by what they are about.
type batches[K comparable, T any] struct {
	ask  func(ctx context.Context, key K) (T, error)
	ctx  context.Context
	most int // how many may be under way at a time

	mu    sync.Mutex
	asked map[K]*about[T]
}

type about[T any] struct {
	batch[T]
	waiting int // under batches.mu
	end     context.CancelFunc
}

// do returns the answer of the next call about a key, or errBusy if there are as many
// others as there may be.
func (q *batches[K, T]) do(ctx context.Context, key K) (T, error) {
	q.mu.Lock()
	mine := q.asked[key]
	if mine == nil {
		if len(q.asked) >= q.most {
			q.mu.Unlock()
			var none T
			return none, errBusy
		}
		ctx, end := context.WithCancel(q.ctx)
		mine = &about[T]{end: end, batch: batch[T]{ctx: ctx, ask: func(ctx context.Context) (T, error) { return q.ask(ctx, key) }}}
		if q.asked == nil {
			q.asked = map[K]*about[T]{}
		}
		q.asked[key] = mine
	}
	mine.waiting++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if mine.waiting--; mine.waiting == 0 {
			delete(q.asked, key)
			mine.end() // nobody wants to know any more
		}
	}()
	return mine.do(ctx)
}
