// Package indexer holds the store of an informer: a snapshot that any number
// of goroutines read without locks, and the log of how it came to be so.
//
// One goroutine writes: it hands batches of deltas to [Indexer.Apply], which
// changes the store, appends the events to the log and publishes both as one
// atomic value, a [View]. Every reader therefore sees a state and the place in
// the log that belongs to it; between the two nothing is lost and nothing is
// told twice.
//
// Values do not live in the ordered structure. Each object has a slot that
// points at its newest version, so an update is one hash lookup and one small
// allocation however many objects there are; the copy-on-write tree changes
// only when objects come or go. Publishing a persistent tree for each update
// was measured at ten times the cost, and readers paid for it as well.
package indexer

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"
	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
)

// EventType says what an event did.
type EventType uint8

// What happened to the object.
const (
	Added EventType = iota + 1
	Updated
	Deleted
)

// Event is one change of the store.
type Event[T object.Object] struct {
	// Object is the new state; for Deleted the last state known.
	Object T
	// Old is the state before: set for Updated and Deleted, unless the store
	// began with a watch and had not seen the object.
	Old T
	// ResourceVersion of the store once the event had happened. 0 where the
	// source's versions are not decimal numbers.
	ResourceVersion uint64
	Type            EventType
	// Unseen says that the deletion itself was not seen: the object was
	// missing from a list. Its last state may be out of date.
	Unseen bool
	// Initial says that the event belongs to the store's first list.
	Initial bool
	// Same says that Options.Same finds no difference between Old and Object.
	Same bool
}

// Options of an indexer. The zero value is usable.
type Options[T object.Object] struct {
	// Retain is the number of events kept in the log for readers that come
	// back to an earlier resourceVersion.
	Retain int
	// Size is the number of bytes an object takes, for [Stats]. nil counts
	// nothing.
	Size func(T) int
	// Namespaces, if not empty, are listed and watched one by one. The store is
	// synced once all have been listed, and its resourceVersion is that of the
	// one that is furthest behind.
	Namespaces []string
	// Literal takes the source at its word, as client-go does: a deletion is
	// told of whether or not the object was held, and an object not held is
	// Added even if the source says Updated and the store has had no list yet.
	Literal bool
	// Same, if not nil, is asked of each update, for Event.Same.
	Same func(old, new T) bool
}

// Stats are counters for those who operate the store.
type Stats struct {
	Objects int
	Bytes   int64  // by Options.Size
	Events  uint64 // appended to the log so far
	Pinned  int    // views that readers hold at present, the newest aside
}

// Indexer is the store. Everything may be called by anybody at any time; who
// writes waits for others who write, and nobody who reads waits for anybody.
type Indexer[T object.Object] struct {
	slots   *xsync.Map[string, *slot[T]]
	log     *changelog.Log[Event[T]]
	current atomic.Pointer[Moment[T]]
	size    func(T) int
	same    func(old, new T) bool
	literal bool
	bytes   atomic.Int64
	pinned  atomic.Int64

	// dirty says that there are quiet changes that no View has. The next reader
	// who needs one publishes it.
	dirty atomic.Bool

	writer   sync.Mutex // held by whoever writes; what follows is the writer's own
	order    *btree.BTreeG[*slot[T]]
	reshaped bool // order differs from the current View's
	hidden   bool // the current View is a stand-in that nobody can pin
	relist   uint64
	epoch    uint64
	scopes   scopes
	rv       uint64 // of the scope that is furthest behind
	synced   bool   // every scope has been listed
	events   []Event[T]
	touched  []*slot[T] // slots changed since the last View
	live     []*hold    // of superseded views that somebody has pinned, oldest first
	trailing map[*slot[T]]struct{}
	scratch  []byte
	indexes  []*index[T]
	was, is  []string // values of indexes
}

// New returns an empty store.
func New[T object.Object](opts Options[T]) *Indexer[T] {
	ix := &Indexer[T]{
		slots:    xsync.NewMap[string, *slot[T]](),
		log:      changelog.New[Event[T]](opts.Retain),
		size:     opts.Size,
		same:     opts.Same,
		literal:  opts.Literal,
		trailing: map[*slot[T]]struct{}{},
		scopes:   newScopes(opts.Namespaces),
	}
	ix.order = newOrder[T]()
	ix.current.Store(&Moment[T]{&View[T]{order: ix.order.Copy(), ix: ix, hold: &hold{}}, ix.log.Tail()})
	return ix
}

func newOrder[T object.Object]() *btree.BTreeG[*slot[T]] {
	return btree.NewBTreeGOptions(func(a, b *slot[T]) bool { return a.key < b.key }, btree.Options{NoLocks: true})
}

// Get returns the newest version of the object with the given key.
func (ix *Indexer[T]) Get(key string) (T, bool) {
	if s, ok := ix.slots.Load(key); ok {
		if v := s.newest.Load(); !v.deleted {
			return v.object, true
		}
	}
	var none T
	return none, false
}

// Held returns an object if this very version of it is in the store.
func (ix *Indexer[T]) Held(id codec.Identity) (T, bool) {
	if o, ok := ix.Get(object.Key(id.Namespace, id.Name)); ok && string(o.GetUID()) == id.UID && o.GetResourceVersion() == id.ResourceVersion {
		return o, true
	}
	var none T
	return none, false
}

// Pin returns the newest View, to be released by the caller.
func (ix *Indexer[T]) Pin() *View[T] { return ix.PinMoment().View }

// PinMoment is Pin for who wants to know what happens next.
func (ix *Indexer[T]) PinMoment() *Moment[T] {
	for {
		if ix.dirty.Load() {
			ix.settle()
		}
		if m := ix.current.Load(); m.hold.pin() {
			return m
		}
	}
}

// settle publishes the quiet changes that no View has.
func (ix *Indexer[T]) settle() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if ix.dirty.Load() {
		ix.publish(changelog.Changes)
	}
}

// Latest returns the newest View without pinning it: good for its position and
// counts, and for nothing else, since its objects may be superseded meanwhile.
func (ix *Indexer[T]) Latest() *Moment[T] { return ix.current.Load() }

// Since is [changelog.Log.Since]: where a reader that has seen everything up to
// resourceVersion goes on.
func (ix *Indexer[T]) Since(resourceVersion uint64) (*changelog.Position[Event[T]], bool) {
	return ix.log.Since(resourceVersion)
}

// Version is the resourceVersion up to which a scope has been seen: one of
// Options.Namespaces, or the empty string where there are none. It says too
// whether there has been a list: without one, what came before is not known.
func (ix *Indexer[T]) Version(namespace string) (version uint64, listed bool) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	s := ix.scopes.of(namespace)
	return s.version, s.listed
}

// Confirm says that nothing happened between the state of v and resourceVersion,
// as a bookmark does: the store is good for that version, too. It does nothing,
// and returns false, if v is not the newest View any more.
func (ix *Indexer[T]) Confirm(v *View[T], resourceVersion uint64) bool {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	if ix.current.Load().epoch != v.epoch || !ix.synced || ix.dirty.Load() {
		return false
	}
	if resourceVersion > ix.rv {
		ix.advance("", resourceVersion)
		ix.publish(changelog.Changes)
	}
	return true
}

// PinSince returns the newest View, to be released by the caller, and the events
// that led to it from resourceVersion on. It returns false if the log does not
// tell, which it does not between the events of one relist.
func (ix *Indexer[T]) PinSince(resourceVersion uint64) (*View[T], []Event[T], bool) {
	for {
		from, ok := ix.log.Since(resourceVersion)
		if !ok {
			return nil, nil, false
		}
		now := ix.PinMoment() // which is not before from
		var events []Event[T]
		p := from
		for p != now.tail {
			b := p.Next()
			if b == nil { // the View is published a moment before its events
				break
			}
			if b.Kind != changelog.Changes && p == from && p.ResourceVersion != resourceVersion {
				now.Release()
				return nil, nil, false
			}
			for i := range b.Events {
				if b.Kind != changelog.Changes || b.Events[i].ResourceVersion > resourceVersion {
					events = append(events, b.Events[i])
				}
			}
			p = b.End
		}
		if p == now.tail {
			return now.View, events, true
		}
		now.Release()
	}
}

// Stats may be called at any time.
func (ix *Indexer[T]) Stats() Stats {
	if ix.dirty.Load() {
		ix.settle()
	}
	v := ix.current.Load()
	return Stats{Objects: v.Len(), Bytes: ix.bytes.Load(), Events: v.tail.Seq, Pinned: int(ix.pinned.Load())}
}

// publishAt is how many events of a batch are published without waiting for the
// rest: enough for what it costs to publish to vanish among them, few enough for
// those who follow to begin with them soon, and to find them in the processor's
// cache.
const publishAt = 1024

// Apply brings the store up to date with a batch of deltas, in their order,
// and publishes the result. A relist becomes visible as a whole. Quiet deltas
// alone are published when somebody next asks for a View, so that a store written
// to one by one is not copied each time. Of many other deltas the first are
// published while the rest is still being applied.
func (ix *Indexer[T]) Apply(deltas []delta.Delta[T]) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	pending := false // there is something to publish for those who follow
	for i := range deltas {
		d := &deltas[i]
		if pending && len(ix.events) >= publishAt {
			ix.publish(changelog.Changes)
			pending = false
		}
		if ix.events == nil {
			ix.events = make([]Event[T], 0, min(len(deltas)-i, publishAt))
		}
		told := len(ix.events)
		if d.Quiet {
			ix.hide()
		}
		switch d.Type {
		case delta.Sync:
			continue
		case delta.Replaced:
			if pending {
				ix.publish(changelog.Changes)
			}
			pending, told = false, 0
			ix.replace(d.List, d.Quiet)
			if d.Quiet {
				break
			}
			ix.publish(changelog.Relist)
			continue
		case delta.Vanished:
			if pending {
				ix.publish(changelog.Changes)
			}
			ix.scopes.vanish(d.List.Namespace)
			ix.relist++ // which has seen nothing
			ix.sweep(d.List.Namespace)
			ix.rv, ix.synced = ix.scopes.version(), false
			ix.publish(changelog.Emptied)
			pending = false
			continue
		case delta.Bookmark:
			ix.advance(d.List.Namespace, object.Version(d.List.ResourceVersion))
		case delta.Deleted:
			ix.remove(d.Object)
		default:
			ix.set(d.Object, d.Type == delta.Updated)
		}
		if d.Quiet {
			ix.hush(told)
			continue
		}
		pending = true
	}
	if pending {
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
	standIn := &View[T]{ResourceVersion: v.ResourceVersion, Synced: v.Synced, epoch: v.epoch, order: newOrder[T](), ix: ix, hold: &hold{epoch: v.epoch}}
	standIn.hold.pins.Store(retired)
	ix.current.Store(&Moment[T]{standIn, v.tail})
}

// hush takes back the pending events but the first n.
func (ix *Indexer[T]) hush(n int) {
	clear(ix.events[n:])
	ix.events = ix.events[:n]
}

// Empty deletes everything and forgets the resourceVersion: the store is as
// new, but readers of the log see each object go.
func (ix *Indexer[T]) Empty() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	ix.order.Scan(func(s *slot[T]) bool {
		last := s.newest.Load().object
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: last, Old: last, ResourceVersion: ix.rv, Unseen: true})
		ix.mark(s, &version[T]{deleted: true})
		return true
	})
	ix.slots.Clear()
	ix.order, ix.reshaped = newOrder[T](), true
	for _, in := range ix.indexes {
		in.tree.Clear()
		in.reshaped = true
	}
	ix.bytes.Store(0)
	ix.scopes.reset()
	ix.rv, ix.synced = 0, false
	ix.publish(changelog.Emptied)
	ix.log.Forget()
}

// set makes o the newest version of itself. Before the first list the store
// cannot know whether an object is new; then the source's word counts.
func (ix *Indexer[T]) set(o T, updated bool) {
	rv := object.Version(o.GetResourceVersion())
	s := ix.lookup(o)
	if s == nil {
		ix.advance(o.GetNamespace(), rv)
		ix.insert(o)
		event := Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv}
		if updated && !ix.synced && !ix.literal {
			event.Type = Updated
		}
		ix.events = append(ix.events, event)
		return
	}
	old := s.newest.Load().object
	if !newer(old, rv) && (same(old, o) || stale(old, o, rv)) {
		return // told already
	}
	ix.advance(o.GetNamespace(), rv)
	ix.change(s, old, o)
}

// change puts o in the place of old. Another uid is another object: the
// old one goes, unseen, before the new one comes.
func (ix *Indexer[T]) change(s *slot[T], old, o T) {
	if old.GetUID() != o.GetUID() {
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: old, Old: old, ResourceVersion: ix.rv, Unseen: true},
			Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv})
	} else {
		same := ix.same != nil && ix.same(old, o)
		ix.events = append(ix.events, Event[T]{Type: Updated, Object: o, Old: old, ResourceVersion: ix.rv, Same: same})
	}
	ix.account(o, 1)
	ix.account(old, -1)
	ix.reindex(s, old, o, true, true)
	ix.mark(s, &version[T]{object: o})
}

// remove takes o out of the store.
func (ix *Indexer[T]) remove(o T) {
	s := ix.lookup(o)
	if s == nil {
		ix.advance(o.GetNamespace(), object.Version(o.GetResourceVersion()))
		if !ix.synced || ix.literal { // it was there before the store began to look
			ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, ResourceVersion: ix.rv})
		}
		return
	}
	old, rv := s.newest.Load().object, object.Version(o.GetResourceVersion())
	if stale(old, o, rv) {
		return
	}
	ix.advance(o.GetNamespace(), rv)
	ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, Old: old, ResourceVersion: ix.rv})
	ix.drop(s)
}

// replace makes the store, or one namespace of it, hold exactly the listed
// items. Deletions come first in the log, then what was added or changed, in the
// order of the list.
func (ix *Indexer[T]) replace(list *delta.List[T], quiet bool) {
	initial := false
	if !quiet {
		initial = ix.scopes.list(list.Namespace, object.Version(list.ResourceVersion))
		ix.rv, ix.synced = ix.scopes.version(), ix.scopes.complete()
	}
	ix.relist++
	for _, o := range list.Items {
		s := ix.lookup(o)
		if s == nil {
			ix.insert(o).seen = ix.relist
			ix.events = append(ix.events, Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv, Initial: initial})
			continue
		}
		s.seen = ix.relist
		if old := s.newest.Load().object; !same(old, o) {
			ix.change(s, old, o)
		}
	}
	changed := ix.events
	ix.events = nil
	ix.sweep(list.Namespace)
	if len(ix.events) == 0 {
		ix.events = changed
	} else {
		ix.events = append(ix.events, changed...)
	}
}

// sweep drops everything in a scope that the present relist has not seen.
func (ix *Indexer[T]) sweep(namespace string) {
	var gone []*slot[T]
	missing := func(s *slot[T]) bool {
		if s.seen != ix.relist {
			gone = append(gone, s)
		}
		return true
	}
	if prefix := object.Key(namespace, ""); prefix == "" {
		ix.order.Scan(missing)
	} else {
		ix.order.Ascend(&slot[T]{key: prefix}, func(s *slot[T]) bool { return strings.HasPrefix(s.key, prefix) && missing(s) })
	}
	for _, s := range gone {
		last := s.newest.Load().object
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: last, Old: last, ResourceVersion: ix.rv, Unseen: true})
		ix.drop(s)
	}
}

// insert makes a slot for an object that has none.
func (ix *Indexer[T]) insert(o T) *slot[T] {
	s := &slot[T]{key: object.Key(o.GetNamespace(), o.GetName())}
	ix.mark(s, &version[T]{object: o})
	ix.account(o, 1)
	ix.slots.Store(s.key, s)
	ix.order.Set(s)
	var none T
	ix.reindex(s, none, o, false, true)
	ix.reshaped = true
	return s
}

// drop takes a slot out, leaving a tombstone for views that still see it.
func (ix *Indexer[T]) drop(s *slot[T]) {
	held := s.newest.Load().object
	ix.account(held, -1)
	var none T
	ix.reindex(s, held, none, true, false)
	ix.mark(s, &version[T]{deleted: true})
	ix.slots.Delete(s.key)
	ix.order.Delete(s)
	ix.reshaped = true
}

// mark makes v the newest version of s from the next View on.
func (ix *Indexer[T]) mark(s *slot[T], v *version[T]) {
	v.epoch = ix.epoch + 1
	previous := s.newest.Load()
	if previous != nil && previous.epoch == v.epoch {
		previous = previous.older.Load() // no View ever saw that one
	} else {
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
	order := previous.order
	if ix.reshaped {
		order, ix.reshaped = ix.order.Copy(), false
	}
	ix.epoch++
	ix.current.Store(&Moment[T]{&View[T]{
		ResourceVersion: ix.rv, Synced: ix.synced,
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
	freed := false
	for _, h := range ix.live {
		if h.retire() {
			freed = true
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
		if ix.cut(s) && !s.newest.Load().deleted {
			ix.trailing[s] = struct{}{}
		} else {
			delete(ix.trailing, s)
		}
	}
	clear(ix.touched)
	ix.touched = ix.touched[:0]
	if freed {
		for s := range ix.trailing {
			if !ix.cut(s) {
				delete(ix.trailing, s)
			}
		}
	}
}

// cut unlinks from s the versions that neither the newest View nor a pinned
// one sees, and reports whether any older version is left.
func (ix *Indexer[T]) cut(s *slot[T]) bool {
	keeper := s.newest.Load()
	next := len(ix.live) - 1
	for v := keeper.older.Load(); v != nil; v = v.older.Load() {
		// v is seen by the views from its own epoch up to that of the version
		// in front of it.
		for next >= 0 && ix.live[next].epoch >= keeper.epoch {
			next--
		}
		if next < 0 {
			break
		}
		if ix.live[next].epoch >= v.epoch {
			keeper.older.Store(v)
			keeper = v
		}
	}
	keeper.older.Store(nil)
	return s.newest.Load() != keeper
}

// lookup finds the slot of an object without making a string of its key.
func (ix *Indexer[T]) lookup(o T) *slot[T] {
	ix.scratch = ix.scratch[:0]
	if ns := o.GetNamespace(); ns != "" {
		ix.scratch = append(append(ix.scratch, ns...), '/')
	}
	ix.scratch = append(ix.scratch, o.GetName()...)
	s, _ := ix.slots.Load(unsafe.String(unsafe.SliceData(ix.scratch), len(ix.scratch)))
	return s
}

func (ix *Indexer[T]) account(o T, sign int64) {
	if ix.size != nil {
		ix.bytes.Add(sign * int64(ix.size(o)))
	}
}

// advance moves the resourceVersion of a namespace's scope forward, never back.
func (ix *Indexer[T]) advance(namespace string, rv uint64) {
	ix.scopes.advance(namespace, rv)
	ix.rv = ix.scopes.version()
}

// newer says that version is is certainly later than the one held: which nearly
// all are, and which is quicker to find out than that they are not.
func newer[T object.Object](held T, is uint64) bool {
	was := object.Version(held.GetResourceVersion())
	return 0 < was && was < is
}

// same says that a and b are one version of one object.
func same[T object.Object](a, b T) bool {
	return a.GetResourceVersion() == b.GetResourceVersion() && a.GetResourceVersion() != "" && a.GetUID() == b.GetUID()
}

// stale says that o, of version is, is an earlier state of the very object held.
func stale[T object.Object](held, o T, is uint64) bool {
	return is != 0 && object.Version(held.GetResourceVersion()) > is && held.GetUID() == o.GetUID()
}
