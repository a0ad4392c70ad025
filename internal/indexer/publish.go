package indexer

import (
	"slices"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
)

// publishQuiet publishes the quiet changes that no View has yet.
func (ix *Indexer[T]) publishQuiet() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
}

// suspend prepares for quiet changes. If nobody has pinned the newest View, it
// replaces it by a placeholder that cannot be pinned: until somebody asks for a
// View the writer need not copy the trees, and cuts superseded versions at once. A
// newest View that is pinned stays, with everything it sees.
func (ix *Indexer[T]) suspend() {
	ix.dirty.Store(true) // first: a reader that fails to pin the View must see this
	v := ix.current.Load()
	if ix.suspended || !v.pins.retire() {
		return
	}
	ix.suspended, ix.orderChanged = true, true
	for _, in := range ix.indexes {
		in.changed = true
	}
	ix.owners.changed = true
	for _, s := range ix.touched {
		ix.cut(s)
	}
	placeholder := &View[T]{ResourceVersion: v.ResourceVersion, Synced: v.Synced, Generation: v.Generation, epoch: v.epoch, order: newOrder[T](), ix: ix, pins: &pins{epoch: v.epoch}}
	placeholder.pins.count.Store(retired)
	ix.current.Store(&Cursor[T]{placeholder, v.tail})
}

// dropQuiet drops the pending events of a quiet delta: all but the first n.
func (ix *Indexer[T]) dropQuiet(n int) {
	clear(ix.events[n:])
	if ix.events = ix.events[:n]; n == 0 && cap(ix.events) > 4*publishAt { // grown by a relist
		ix.events = nil
	}
}

// supersede makes v the newest version of s, as of the next View.
func (ix *Indexer[T]) supersede(s *slot[T], v *version[T]) {
	v.stamp |= 2 * (ix.epoch + 1)
	previous := s.newest.Load()
	switch {
	case previous == nil: // a new slot has nothing to cut
	case previous.epoch() == v.epoch():
		previous = previous.older.Load() // no View ever saw that one
	default:
		ix.touched = append(ix.touched, s)
	}
	v.older.Store(previous)
	s.newest.Store(v)
	if ix.suspended {
		ix.cut(s)
	}
}

// publish makes everything since the last View visible: first the View, then the
// events in the log.
func (ix *Indexer[T]) publish(kind changelog.Kind) {
	batch, announce := ix.log.Append(ix.takeEvents(), kind, ix.rv, ix.synced)
	previous := ix.current.Load()
	ix.epoch++
	order, generation := previous.order, previous.Generation
	if ix.orderChanged || len(ix.touched) > 0 {
		generation = ix.epoch
	}
	if ix.orderChanged {
		order, ix.orderChanged = ix.order.Copy(), false
	}
	ix.current.Store(&Cursor[T]{&View[T]{
		ResourceVersion: ix.rv, Synced: ix.synced, Generation: generation,
		epoch: ix.epoch, order: order, ix: ix,
		indexes: ix.copyIndexes(), owners: ix.copyOwners(), pins: &pins{epoch: ix.epoch},
	}, batch.End})
	ix.dirty.Store(false)
	ix.retire(previous.pins)
	announce()
}

// takeEvents returns the pending events in a slice of their own. It hands over
// the slice itself, unless that would keep much more memory than the events need.
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

// retire retires the previous View, if it is not pinned, and all others whose
// pins have been released. Then it cuts the versions that no View sees any more.
func (ix *Indexer[T]) retire(previous *pins) {
	superseded := ix.superseded[:0]
	for _, p := range ix.superseded {
		if p.retire() {
			ix.released = true
		} else {
			superseded = append(superseded, p)
		}
	}
	clear(ix.superseded[len(superseded):])
	if !ix.suspended && !previous.retire() { // a placeholder is retired from the start
		superseded = append(superseded, previous)
	}
	ix.suspended = false
	ix.superseded = superseded
	ix.pinned.Store(int64(len(superseded)))

	for _, s := range ix.touched {
		// The writer drops a deleted slot. Only the views that see it keep it, and
		// it is freed with them.
		ix.trackHistory(s, ix.cut(s) && !s.newest.Load().deleted())
	}
	ix.unswept += len(ix.touched)
	clear(ix.touched)
	if ix.touched = ix.touched[:0]; cap(ix.touched) > 4*publishAt { // grown by a relist
		ix.touched = nil
	}
	if ix.released && (len(superseded) == 0 || ix.unswept >= 4*len(ix.history) || time.Since(ix.swept) >= sweepEvery) {
		ix.sweepHistory()
	}
}

// trackHistory adds s to the slots with older versions, or removes it.
func (ix *Indexer[T]) trackHistory(s *slot[T], older bool) {
	last := len(ix.history) - 1
	switch i := int(s.history) - 1; {
	case older && i < 0:
		ix.history = append(ix.history, s)
		s.history = int32(len(ix.history))
	case !older && i >= 0:
		ix.history[i] = ix.history[last]
		ix.history[i].history = s.history
		ix.history[last], ix.history, s.history = nil, ix.history[:last], 0
	}
}

// sweepHistory cuts every slot with older versions.
func (ix *Indexer[T]) sweepHistory() {
	for i := len(ix.history) - 1; i >= 0; i-- { // backwards: a slot that is removed is replaced by one already visited
		ix.trackHistory(ix.history[i], ix.cut(ix.history[i]))
	}
	if len(ix.history) == 0 && cap(ix.history) > 4*publishAt { // grown by a relist
		ix.history = nil
	}
	ix.released, ix.unswept, ix.swept = false, 0, time.Now()
}

// sweepEvery limits how long versions stay after the View that needed them was
// released, while other views are pinned and the store is written to. With many
// readers nearly every write finds a released View, and a sweep at each of them
// would be most of the writer's work.
const sweepEvery = 100 * time.Millisecond

// cut unlinks the versions of s that neither the newest View nor a pinned one
// sees. It reports whether an older version is left.
func (ix *Indexer[T]) cut(s *slot[T]) bool {
	kept := s.newest.Load()
	next := len(ix.superseded) - 1
	for v := kept.older.Load(); v != nil; v = v.older.Load() {
		// The views that see v are those from its own epoch up to, but not
		// including, the epoch of the version that was kept before it.
		for next >= 0 && ix.superseded[next].epoch >= kept.epoch() {
			next--
		}
		if next < 0 {
			break
		}
		if ix.superseded[next].epoch >= v.epoch() {
			kept.older.Store(v)
			kept = v
		}
	}
	kept.older.Store(nil)
	return s.newest.Load() != kept
}
