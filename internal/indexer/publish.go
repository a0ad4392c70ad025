package indexer

import (
	"slices"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
)

// settle publishes the quiet changes that no View has.
func (ix *Indexer[T]) settle() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
}

// hide makes way for quiet changes: until somebody asks for a View there is none,
// and what the changes supersede is let go of at once. If the newest View is
// pinned it stays, with all that it sees.
func (ix *Indexer[T]) hide() {
	ix.dirty.Store(true) // first: who fails to pin the View must see this
	v := ix.current.Load()
	if ix.hidden || !v.hold.retire() {
		return
	}
	ix.hidden, ix.reshaped = true, true
	for _, in := range ix.indexes {
		in.reshaped = true
	}
	for _, s := range ix.touched {
		ix.cut(s)
	}
	standIn := &View[T]{ResourceVersion: v.ResourceVersion, Synced: v.Synced, Generation: v.Generation, epoch: v.epoch, order: newOrder[T](), ix: ix, hold: &hold{epoch: v.epoch}}
	standIn.hold.pins.Store(retired)
	ix.current.Store(&Moment[T]{standIn, v.tail})
}

// hush takes back the pending events but the first n.
func (ix *Indexer[T]) hush(n int) {
	clear(ix.events[n:])
	if ix.events = ix.events[:n]; n == 0 && cap(ix.events) > 4*publishAt { // a relist's
		ix.events = nil
	}
}

// mark makes v the newest version of s from the next View on.
func (ix *Indexer[T]) mark(s *slot[T], v *version[T]) {
	v.from |= 2 * (ix.epoch + 1)
	previous := s.newest.Load()
	switch {
	case previous == nil: // a new slot has nothing that could be cut
	case previous.epoch() == v.epoch():
		previous = previous.older.Load() // no View ever saw that one
	default:
		ix.touched = append(ix.touched, s)
	}
	v.older.Store(previous)
	s.newest.Store(v)
	if ix.hidden {
		ix.cut(s)
	}
}

// publish makes everything since the last View visible: the store first, then
// the news of it.
func (ix *Indexer[T]) publish(kind changelog.Kind) {
	batch, announce := ix.log.Append(ix.takeEvents(), kind, ix.rv, ix.synced)
	previous := ix.current.Load()
	ix.epoch++
	order, generation := previous.order, previous.Generation
	if ix.reshaped || len(ix.touched) > 0 {
		generation = ix.epoch
	}
	if ix.reshaped {
		order, ix.reshaped = ix.order.Copy(), false
	}
	ix.current.Store(&Moment[T]{&View[T]{
		ResourceVersion: ix.rv, Synced: ix.synced, Generation: generation,
		epoch: ix.epoch, order: order, ix: ix,
		indexes: ix.copyIndexes(), hold: &hold{epoch: ix.epoch},
	}, batch.End})
	ix.dirty.Store(false)
	ix.supersede(previous.hold)
	announce()
}

// takeEvents returns the pending events in a slice of their own. They are handed
// over as they are, unless that would keep much more memory than they need.
func (ix *Indexer[T]) takeEvents() []Event[T] {
	events := ix.events
	if len(events) == 0 {
		return nil
	}
	if len(events) > cap(events)/2 {
		ix.events = nil
		return events
	}
	ix.events = events[:0]
	few := slices.Clone(events)
	clear(events)
	return few
}

// supersede notes that a View is not the newest any more, and cuts off the
// versions that no View needs now.
func (ix *Indexer[T]) supersede(previous *hold) {
	live := ix.live[:0]
	for _, h := range ix.live {
		if h.retire() {
			ix.freed = true
		} else {
			live = append(live, h)
		}
	}
	clear(ix.live[len(live):])
	if !ix.hidden && !previous.retire() { // what stands in for a View is retired from the start
		live = append(live, previous)
	}
	ix.hidden = false
	ix.live = live
	ix.pinned.Store(int64(len(live)))

	for _, s := range ix.touched {
		// Of an object that is gone nothing is left but for who sees it, and it
		// goes with him.
		ix.trail(s, ix.cut(s) && !s.newest.Load().deleted())
	}
	ix.unswept += len(ix.touched)
	clear(ix.touched)
	if ix.touched = ix.touched[:0]; cap(ix.touched) > 4*publishAt { // a relist's
		ix.touched = nil
	}
	if ix.freed && (len(live) == 0 || ix.unswept >= 4*len(ix.trailing) || time.Since(ix.swept) >= sweepEvery) {
		ix.sweepTrailing()
	}
}

// trail notes whether older versions are kept of a slot.
func (ix *Indexer[T]) trail(s *slot[T], trails bool) {
	last := len(ix.trailing) - 1
	switch place := int(s.trail) - 1; {
	case trails && place < 0:
		ix.trailing = append(ix.trailing, s)
		s.trail = int32(len(ix.trailing))
	case !trails && place >= 0:
		ix.trailing[place] = ix.trailing[last]
		ix.trailing[place].trail = s.trail
		ix.trailing[last], ix.trailing, s.trail = nil, ix.trailing[:last], 0
	}
}

// sweepTrailing looks at every slot that older versions are kept of.
func (ix *Indexer[T]) sweepTrailing() {
	for i := len(ix.trailing) - 1; i >= 0; i-- { // whoever takes the place of one that goes has been looked at
		ix.trail(ix.trailing[i], ix.cut(ix.trailing[i]))
	}
	if len(ix.trailing) == 0 && cap(ix.trailing) > 4*publishAt { // a relist's
		ix.trailing = nil
	}
	ix.freed, ix.unswept, ix.swept = false, 0, time.Now()
}

// sweepEvery is how long what a View was pinned for may be kept, beyond its release
// and with something being written, because of others that are still pinned. With
// many readers nearly every write finds one gone, and to look each time through
// everything that is kept for the others would be most of the writer's work.
const sweepEvery = 100 * time.Millisecond

// cut unlinks from s the versions that neither the newest View nor a pinned
// one sees, and reports whether any older version is left.
func (ix *Indexer[T]) cut(s *slot[T]) bool {
	keeper := s.newest.Load()
	next := len(ix.live) - 1
	for v := keeper.older.Load(); v != nil; v = v.older.Load() {
		// v is seen by the views from its own epoch up to that of the version
		// in front of it.
		for next >= 0 && ix.live[next].epoch >= keeper.epoch() {
			next--
		}
		if next < 0 {
			break
		}
		if ix.live[next].epoch >= v.epoch() {
			keeper.older.Store(v)
			keeper = v
		}
	}
	keeper.older.Store(nil)
	return s.newest.Load() != keeper
}
