package mirror

import (
	"context"
	"sync"
)

// rounds shares the answers to a question among all who ask it. Whoever asks
// gets an answer to a question that was put after he asked: one that is on its
// way already may be too old for him, and so he waits for the next one, together
// with all who have come meanwhile. However many ask, one question at a time is
// put.
type rounds struct {
	// ask puts the question. Its context ends with the keeper.
	ask func(context.Context) (version uint64, err error)
	ctx context.Context

	mu      sync.Mutex
	next    *round
	running bool
}

type round struct {
	done    chan struct{}
	version uint64
	err     error
}

// do returns the answer of the next round.
func (r *rounds) do(ctx context.Context) (uint64, error) {
	r.mu.Lock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	mine := r.next
	if !r.running {
		r.running = true
		go r.run()
	}
	r.mu.Unlock()
	select {
	case <-mine.done:
		return mine.version, mine.err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// run holds rounds as long as somebody waits for one.
func (r *rounds) run() {
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
		now.version, now.err = r.ask(r.ctx)
		close(now.done)
	}
}
