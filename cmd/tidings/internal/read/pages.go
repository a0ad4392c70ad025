package read

import (
	"sync"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// pages keeps the states that continue tokens refer to, each for some time after its
// last use. It bounds their number in all and for each caller, so that the pages of one
// caller do not evict those of the others. A caller without a name, the only user of the
// machine, is bounded by the total alone.
type pages struct {
	ttl               time.Duration
	max, maxPerCaller int

	mu    sync.Mutex
	byKey map[pageKey]*page
}

// pageKey identifies a state. Lists of the same state share it.
type pageKey struct {
	feed            *feed
	resourceVersion string
}

// page is a state that is kept. pages.mu guards all but the key and the view.
type page struct {
	pageKey
	view    *informer.View[*codec.Raw]
	unwatch func() // the informer is in use while the page is kept

	readers int                  // the view is not released before they are done
	callers map[string]time.Time // the last use by each caller it is kept for; empty: no longer kept
	expiry  *time.Timer
}

func newPages(ttl time.Duration, max, maxPerCaller int) *pages {
	return &pages{ttl: ttl, max: max, maxPerCaller: maxPerCaller, byKey: map[pageKey]*page{}}
}

// keep takes ownership of the pinned view of a version for a caller, and returns its
// page, to be ended with done as after find. If the informer has ended, keep releases
// the view and returns nil.
func (p *pages) keep(f *feed, view *informer.View[*codec.Raw], version, caller string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := pageKey{f, version}
	x := p.byKey[at]
	switch {
	case x != nil:
		view.Release()
	case f.Context().Err() != nil: // it is being emptied, and clear has run
		view.Release()
		return nil
	default:
		x = &page{pageKey: at, view: view, unwatch: f.Watched(), callers: map[string]time.Time{}}
		// By key: the runtime may keep a stopped timer until it would have fired,
		// and must not keep the state for so long.
		x.expiry = time.AfterFunc(p.ttl, func() { p.expire(at) })
		p.byKey[at] = x
	}
	x.readers++
	p.touch(x, caller)
	if own := p.of(caller); caller != "" && len(own) > p.maxPerCaller {
		p.drop(oldest(own, caller), caller)
	}
	for len(p.byKey) > p.max {
		busiest, pages := "", []*page(nil)
		for _, other := range p.byKey {
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

// of returns the pages that are kept for a caller.
func (p *pages) of(caller string) (own []*page) {
	for _, x := range p.byKey {
		if _, ok := x.callers[caller]; ok {
			own = append(own, x)
		}
	}
	return own
}

// oldest returns the caller's least recently used page.
func oldest(own []*page, caller string) *page {
	first := own[0]
	for _, x := range own {
		if x.callers[caller].Before(first.callers[caller]) {
			first = x
		}
	}
	return first
}

// find returns the page of a version, nil if it is no longer kept. The caller must call
// done when it has read the page.
func (p *pages) find(f *feed, resourceVersion, caller string) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.byKey[pageKey{f, resourceVersion}]
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

// done ends a use of a page.
func (p *pages) done(x *page) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.readers--
	x.release()
}

// expire removes a page that has not been used for the TTL. It may have been used since
// the timer fired.
func (p *pages) expire(at pageKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.byKey[at]
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

// clear removes all pages of a feed.
func (p *pages) clear(f *feed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, x := range p.byKey {
		if at.feed == f {
			p.remove(x)
		}
	}
}

// drop stops keeping a page for a caller. The caller of drop holds p.mu, as do those
// of remove and release.
func (p *pages) drop(x *page, caller string) {
	if delete(x.callers, caller); len(x.callers) == 0 {
		p.remove(x)
	}
}

func (p *pages) remove(x *page) {
	clear(x.callers)
	x.expiry.Stop()
	delete(p.byKey, x.pageKey)
	x.unwatch()
	x.release()
}

// release releases the view if the page is not kept and has no readers.
func (x *page) release() {
	if len(x.callers) == 0 && x.readers == 0 {
		x.view.Release()
	}
}
