package access

import (
	"context"
	"sync"
)

// places bounds the questions under way: all of them, and those of one payer to
// half of that, so that others always find some.
type places struct {
	all chan struct{}

	mu      sync.Mutex
	portion map[string]*portion // of payers that have or want a place
}

type portion struct {
	places chan struct{}
	users  int // that have or want one
}

func newPlaces(most int) *places {
	return &places{all: make(chan struct{}, most), portion: map[string]*portion{}}
}

// take takes a place, and waits for one unless that is not worth it. A payer of ""
// is nobody in particular, and has no portion. Each place is to be given back.
func (p *places) take(ctx context.Context, payer string, atOnce bool) bool {
	if payer == "" {
		return enter(ctx, p.all, atOnce)
	}
	own := p.join(payer)
	if enter(ctx, own.places, atOnce) {
		if enter(ctx, p.all, atOnce) {
			return true
		}
		<-own.places
	}
	p.leave(payer)
	return false
}

func (p *places) giveBack(payer string) {
	<-p.all
	if payer != "" {
		<-p.leave(payer).places
	}
}

func (p *places) join(payer string) *portion {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.portion[payer]
	if own == nil {
		own = &portion{places: make(chan struct{}, max(1, cap(p.all)/2))}
		p.portion[payer] = own
	}
	own.users++
	return own
}

func (p *places) leave(payer string) *portion {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := p.portion[payer]
	if own.users--; own.users == 0 {
		delete(p.portion, payer)
	}
	return own
}

func enter(ctx context.Context, places chan struct{}, atOnce bool) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	if atOnce {
		return false
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}
