package access

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// seatPool bounds the reviews in flight. One owner has half of the seats at most,
// so that others always find some.
type seatPool struct {
	all      *semaphore.Weighted
	perOwner int64

	mu     sync.Mutex
	shares map[string]*share // of owners that hold or wait for a seat
}

type share struct {
	seats *semaphore.Weighted
	refs  int
}

func newSeatPool(seats int) *seatPool {
	return &seatPool{all: semaphore.NewWeighted(int64(seats)), perOwner: int64(max(1, seats/2)), shares: map[string]*share{}}
}

// acquire takes a seat and reports whether it got one. It waits until ctx ends, unless
// noWait is set. The owner "" has no share. Each seat must be released.
func (p *seatPool) acquire(ctx context.Context, owner string, noWait bool) bool {
	if owner == "" {
		return acquireSeat(ctx, p.all, noWait)
	}
	own := p.join(owner)
	if acquireSeat(ctx, own.seats, noWait) {
		if acquireSeat(ctx, p.all, noWait) {
			return true
		}
		own.seats.Release(1)
	}
	p.leave(owner)
	return false
}

func (p *seatPool) release(owner string) {
	p.all.Release(1)
	if owner != "" {
		p.leave(owner).seats.Release(1)
	}
}

func (p *seatPool) join(owner string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.shares[owner]
	if own == nil {
		own = &share{seats: semaphore.NewWeighted(p.perOwner)}
		p.shares[owner] = own
	}
	own.refs++
	return own
}

func (p *seatPool) leave(owner string) *share {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.shares[owner]
	if own.refs--; own.refs == 0 {
		delete(p.shares, owner)
	}
	return own
}

func acquireSeat(ctx context.Context, seats *semaphore.Weighted, noWait bool) bool {
	if noWait {
		return seats.TryAcquire(1)
	}
	return seats.Acquire(ctx, 1) == nil
}
