package mirror

import (
	"context"
	"sync"
	"time"
)

// rounds shares the answers to a question among all who ask it. Whoever asks
// gets an answer to a question that was put after he asked: one that is on its
// way already may be too old for him, and so he waits for the next one, together
// with all who have come meanwhile. However many ask, one question at a time is
// put.
type rounds[T any] struct {
	// ask puts the question. Its context ends with the keeper.
	ask func(context.Context) (T, error)
	ctx context.Context

	mu      sync.Mutex
	next    *round[T]
	running bool
}

type round[T any] struct {
	askers int // under rounds.mu, until it is held
	done   chan struct{}
	answer T
	err    error
}

// do returns the answer of the next round.
func (r *rounds[T]) do(ctx context.Context) (T, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round[T]{done: make(chan struct{})}
	}
	mine := r.next
	mine.askers++
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

// Those who have had an answer together are likely to ask again together: a crowd
// is waited for, or the first of them would have a round of his own, and all others
// the next.
const (
	crowd         = 4
	mostGathering = time.Millisecond
)

// run holds rounds as long as somebody waits for one.
func (r *rounds[T]) run() {
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
		if now.askers > crowd {
			select {
			case <-time.After(min(time.Since(begun)/2, mostGathering)):
			case <-r.ctx.Done():
			}
		}
	}
}

// questions are many questions of a kind, each with rounds of its own.
type questions[K comparable, T any] struct {
	ask  func(ctx context.Context, about K) (T, error)
	ctx  context.Context
	most int // how many may be put at a time

	mu    sync.Mutex
	asked map[K]*question[T]
}

type question[T any] struct {
	rounds[T]
	askers int // under questions.mu
}

// do returns the answer of the next round of a question, or errBusy if there are
// as many others as there may be.
func (q *questions[K, T]) do(ctx context.Context, about K) (T, error) {
	q.mu.Lock()
	mine := q.asked[about]
	if mine == nil {
		if len(q.asked) >= q.most {
			q.mu.Unlock()
			var none T
			return none, errBusy
		}
		mine = &question[T]{rounds: rounds[T]{ctx: q.ctx, ask: func(ctx context.Context) (T, error) { return q.ask(ctx, about) }}}
		if q.asked == nil {
			q.asked = map[K]*question[T]{}
		}
		q.asked[about] = mine
	}
	mine.askers++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if mine.askers--; mine.askers == 0 {
			delete(q.asked, about)
		}
	}()
	return mine.do(ctx)
}
