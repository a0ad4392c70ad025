package read

import (
	"sync"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// pages holds the states that continue tokens refer to: each for some time after
// its last use, so many in all, and so many for one caller, so that no caller's
// pages push out everybody's. One without a name, this machine's only user, has all.
type pages struct {
	ttl             time.Duration
	most, mostOfOne int

	mu   sync.Mutex
	held map[moment]*page
}

// moment names a state: lists of the same moment share what is held.
type moment struct {
	feed            *feed
	resourceVersion string
}

// page is one state held. All but the moment and the view is guarded by pages.mu.
type page struct {
	moment
	view    *informer.View[*codec.Raw]
	unwatch func() // as long as it is held, the informer is in use

	readers int                  // it is not to be released under them
	callers map[string]time.Time // when each of those it is held for has used it last; empty: it is not held any more
	expiry  *time.Timer
}

func newPages(ttl time.Duration, most, mostOfOne int) *pages {
	return &pages{ttl: ttl, most: most, mostOfOne: mostOfOne, held: map[moment]*page{}}
}

// hold takes over the pinned view of a version for a caller. The page that is returned is found, as
// by find; it is nil if the informer has ended, and the view is released then.
func (p *pages) hold(f *feed, view *informer.View[*codec.Raw], version, caller string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := moment{f, version}
	x := p.held[at]
	switch {
	case x != nil:
		view.Release()
	case f.Context().Err() != nil: // it is being emptied, and cleared here already
		view.Release()
		return nil
	default:
		x = &page{moment: at, view: view, unwatch: f.Watched(), callers: map[string]time.Time{}}
		// By moment: a timer that was stopped may stay with the runtime until it
		// would have fired, and must not keep the state for so long.
		x.expiry = time.AfterFunc(p.ttl, func() { p.expire(at) })
		p.held[at] = x
	}
	x.readers++
	p.touch(x, caller)
	if own := p.of(caller); caller != "" && len(own) > p.mostOfOne {
		p.drop(oldest(own, caller), caller)
	}
	for len(p.held) > p.most {
		busiest, pages := "", []*page(nil)
		for _, other := range p.held {
			for c := range other.callers {
				if own := p.of(c); len(own) > len(pages) {
					busiest, pages = c, own
				}
			}
		}
		p.drop(oldest(pages, busiest), busiest)
	}
	return x
}

// of are the pages that are held for a caller.
func (p *pages) of(caller string) (own []*page) {
	for _, x := range p.held {
		if _, ok := x.callers[caller]; ok {
			own = append(own, x)
		}
	}
	return own
}

// oldest is the page that the caller has used longest ago.
func oldest(own []*page, caller string) *page {
	first := own[0]
	for _, x := range own {
		if x.callers[caller].Before(first.callers[caller]) {
			first = x
		}
	}
	return first
}

// find returns the state of a version to be read until it is done with, nil if it
// is not held any more.
func (p *pages) find(f *feed, resourceVersion, caller string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.held[moment{f, resourceVersion}]
	if x != nil {
		x.readers++
		if _, own := x.callers[caller]; own {
			p.touch(x, caller)
		}
	}
	return x
}

func (p *pages) touch(x *page, caller string) {
	x.callers[caller] = time.Now()
	x.expiry.Reset(p.ttl)
}

// done ends what find began.
func (p *pages) done(x *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.readers--
	x.release()
}

// expire is called when a page has not been used for some time. The timer may have
// been overtaken by a use.
func (p *pages) expire(at moment) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.held[at]
	if x == nil {
		return
	}
	for _, used := range x.callers {
		if time.Since(used) < p.ttl {
			return
		}
	}
	p.remove(x)
}

// clear removes the pages of a feed.
func (p *pages) clear(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, x := range p.held {
		if at.feed == f {
			p.remove(x)
		}
	}
}

// drop no longer holds a page for a caller. p.mu is held, as for what follows.
func (p *pages) drop(x *page, caller string) {
	if delete(x.callers, caller); len(x.callers) == 0 {
		p.remove(x)
	}
}

func (p *pages) remove(x *page) {
	clear(x.callers)
	x.expiry.Stop()
	delete(p.held, x.moment)
	x.unwatch()
	x.release()
}

// release lets go of the state when nobody can come to read it any more.
func (x *page) release() {
	if len(x.callers) == 0 && x.readers == 0 {
		x.view.Release()
	}
}
