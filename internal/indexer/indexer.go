// Package indexer implements the store of an informer: a snapshot that any number
// of goroutines read without locks, and the log of the changes that led to it.
//
// One goroutine writes. It passes batches of deltas to [Indexer.Apply], which
// changes the store, appends the events to the log and publishes both as one
// atomic value, a [Cursor]: a [View] and its position in the log. A reader that
// goes on from that position misses nothing and sees nothing twice.
//
// The ordered tree does not hold the objects. It holds a slot per object, which
// points at the object's newest version. So an update is one hash lookup and one
// small allocation, however many objects there are, and the copy-on-write tree
// changes only when objects are created or deleted. Publishing a persistent tree
// for each update was measured at ten times the cost, and slowed down readers as
// well. [Indexer] describes the algorithm.
package indexer

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"
	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// EventType is the type of an event.
type EventType uint8

// The types of events.
const (
	Added EventType = iota + 1
	Updated
	Deleted
)

// Event is one change of the store.
type Event[T object.Object] struct {
	// Object is the new state; for Deleted, the last known state.
	Object T
	// Old is the previous state. It is set for Updated and Deleted, unless the
	// store was filled by a watch without a list and did not hold the object.
	Old T
	// ResourceVersion of the store after the event. It is 0 if the source's
	// versions are not decimal numbers.
	ResourceVersion uint64
	Type            EventType
	// Unseen says that the store did not see the deletion itself: the object was
	// missing from a list. Its last known state may be out of date.
	Unseen bool
	// Initial says that the event belongs to the store's first list.
	Initial bool
	// Same is the result of Options.Same for Old and Object.
	Same bool
}

// Options of an indexer. The zero value is usable.
type Options[T object.Object] struct {
	// Retain is the number of events kept in the log for readers that resume from
	// an earlier resourceVersion.
	Retain int
	// Size returns the number of bytes an object takes, for [Stats]. If it is nil,
	// bytes are not counted.
	Size func(T) int
	// Namespaces, if not empty, are listed and watched one by one. The store is
	// synced once all of them have been listed, and its resourceVersion is that of
	// the namespace that is furthest behind.
	Namespaces []string
	// Literal handles objects that the store does not hold as client-go does: a
	// deletion always makes an event, and an update makes an Added event even
	// before the first list.
	Literal bool
	// Same, if not nil, is called for each update, for Event.Same.
	Same func(old, new T) bool
	// Owners, if not nil, appends to dst the hashes of the uids of an object's owners.
	// The store then has an index of them, see [View.Owned]. It must be pure.
	Owners func(dst []uint64, o T) []uint64
	// Panicked, if not nil, is called when an index function has panicked at the
	// object with the given key. The index then does not have the object until it
	// changes. If Panicked is nil, the panic is that of the writer. Panicked must not
	// use the store.
	Panicked func(index, key string, value any)
}

// Stats are counters for monitoring.
type Stats struct {
	Objects int
	Bytes   int64  // by Options.Size
	Events  uint64 // appended to the log so far
	Pinned  int    // superseded views that are pinned
	// Retained is the number of events that the log keeps for readers that resume.
	Retained uint64
}

// Indexer is the store. All methods are safe for concurrent use. Writers exclude
// one another. Readers block nobody; a reader waits for a writer only where its
// method says so.
//
//	Indexer.current ─► Cursor ─► View (epoch, order, indexes, pins)
//	                     │         │
//	                     │         │ order: copy-on-write tree by key
//	                     │         ▼
//	                     │       slot ─newest─► version ─older─► version ─older─► nil
//	                     │         ▲            epoch 9          epoch 4
//	                     │         │
//	                     │       Indexer.slots: hash map by key
//	                     ▼
//	      ... ─batch─► position ─batch─► nil        Indexer.log
//
// Each publication has a number, the epoch. A version carries the epoch of the
// first View that sees it. This is the life of a version:
//
//  1. Found. A View of epoch E sees, in each slot of its tree, the first version
//     from the newest on whose epoch is at most E (slot.at). [View.Get] tries the
//     hash map first, and the tree if the key has no slot now or a later one.
//     A version may be a tombstone: the object is deleted as of that epoch.
//  2. Superseded. The writer gives a new version the epoch of the next View, links
//     the previous one behind it and stores it as the newest (Indexer.supersede).
//     Earlier views skip it by its epoch. A version that no View has seen is not
//     kept.
//  3. Pinned. [Indexer.Pin] counts up the pins of the newest View, and retries if
//     the View has been retired meanwhile. The pins keep every version the View
//     sees, until [View.Release].
//  4. Cut. Once a View is superseded and not pinned, the writer retires it: it
//     cannot be pinned again (Indexer.retire). The writer then unlinks each
//     version that neither the newest View nor a pinned one sees (Indexer.cut),
//     at once in slots it has just changed. Other slots that have older versions
//     are recorded in Indexer.history and swept when pins have been released, at
//     most every sweepEvery unless the sweep is cheap or nothing is pinned.
//     The garbage collector frees what is unlinked.
//
// This is what a writer does, holding Indexer.writer, for a batch of deltas:
//
//  1. Read the metadata of the next deltas ahead of their turn (prefetch).
//  2. For each delta: find the slot in the hash map; ignore a version that is held
//     already or older; advance the resourceVersion; append an event; supersede the
//     version, and add or remove the slot and its index entries as needed.
//  3. Append the events to the log as a batch that readers do not see yet.
//  4. Copy the trees that have changed, which is lazy and takes constant time, and
//     store a new Cursor: a View of the next epoch and the position at the end of
//     the batch. From now on readers see the new state.
//  5. Retire the previous View if it is not pinned, and cut, as above.
//  6. Link the batch into the log, which wakes the readers of the log. They see
//     the events only after the state that the events lead to.
//
// Quiet deltas make no events. For a batch of nothing else, the writer skips steps 3
// to 6. If the newest View is not pinned, the writer suspends it, so that it need not
// copy the trees for each batch and can cut at once (Indexer.suspend). The next
// reader that needs a View publishes one (Indexer.dirty).
type Indexer[T object.Object] struct {
	slots    *xsync.Map[string, *slot[T]]
	log      *changelog.Log[Event[T]]
	relay    changelog.Relay[Event[T]]
	current  atomic.Pointer[Cursor[T]]
	size     func(T) int
	same     func(old, new T) bool
	literal  bool
	panicked func(index, key string, value any)
	bytes    atomic.Int64
	pinned   atomic.Int64

	// dirty says that there are quiet changes that no View has. The next reader
	// that needs a View publishes them.
	dirty atomic.Bool

	walks sync.Pool // of *walk[T]
	least slot[T]   // its key sorts before all others; never changed

	writer       sync.Mutex // guards what follows
	order        *btree.BTreeG[*slot[T]]
	orderChanged bool // order differs from that of the newest View
	suspended    bool // current is a placeholder that cannot be pinned
	epoch        uint64
	scopes       scopes
	rv           uint64 // of the scope that is furthest behind
	synced       bool   // every scope has been listed
	events       []Event[T]
	touched      []*slot[T]   // slots superseded since the last View
	superseded   []*pins      // of superseded views that are pinned, oldest first
	history      []*slot[T]   // slots with older versions
	released     bool         // a View has been retired since the last sweep of history
	unswept      int          // slots touched since then
	swept        time.Time    // time of that sweep
	scratch      []byte       // for keys
	seed         maphash.Seed // of the hashes of uids
	indexes      []*index[T]
	owners       owners[T]

	oldValues, newValues []string // for reindex
}

// New returns an empty store.
func New[T object.Object](opts Options[T]) *Indexer[T] {
	ix := &Indexer[T]{
		slots:    xsync.NewMap[string, *slot[T]](),
		log:      changelog.New[Event[T]](opts.Retain),
		size:     opts.Size,
		same:     opts.Same,
		literal:  opts.Literal,
		panicked: opts.Panicked,
		seed:     maphash.MakeSeed(),
		scopes:   newScopes(opts.Namespaces),
		owners:   newOwners(opts.Owners),
	}
	ix.order = newOrder[T]()
	first := &View[T]{order: ix.order.Copy(), ix: ix, pins: &pins{}}
	if opts.Owners != nil {
		first.owners = ix.owners.tree.Copy()
	}
	ix.current.Store(&Cursor[T]{first, ix.log.Tail()})
	return ix
}

func newOrder[T object.Object]() *btree.BTreeG[*slot[T]] {
	return btree.NewBTreeGOptions(func(a, b *slot[T]) bool { return a.key < b.key }, btree.Options{NoLocks: true})
}

// Get returns the newest version of the object with the given key, which may be
// newer than the newest View.
func (ix *Indexer[T]) Get(key string) (T, bool) {
	if s, ok := ix.slots.Load(key); ok {
		if v := s.newest.Load(); !v.deleted() {
			return v.object, true
		}
	}
	var none T
	return none, false
}

// GetNamed is Get with the key of namespace and name, without allocating the key.
func (ix *Indexer[T]) GetNamed(namespace, name string) (T, bool) {
	buf := keys.Get().(*[]byte)
	defer keys.Put(buf)
	*buf = appendKey((*buf)[:0], namespace, name)
	return ix.Get(unsafe.String(unsafe.SliceData(*buf), len(*buf)))
}

// Held returns the object with the given identity, if the store holds that very
// version.
func (ix *Indexer[T]) Held(id object.Identity) (T, bool) {
	if o, ok := ix.GetNamed(id.Namespace, id.Name); ok && string(o.GetUID()) == id.UID && o.GetResourceVersion() == id.ResourceVersion {
		return o, true
	}
	var none T
	return none, false
}

// keys pools buffers for keys.
var keys = sync.Pool{New: func() any { return new([]byte) }}

// appendKey appends to dst what [object.Key] returns.
func appendKey(dst []byte, namespace, name string) []byte {
	if namespace != "" {
		dst = append(append(dst, namespace...), '/')
	}
	return append(dst, name...)
}

// Pin returns the newest View, pinned. The caller must release it. If there are
// quiet changes to publish, Pin waits for the writer.
func (ix *Indexer[T]) Pin() *View[T] { return ix.PinCursor().View }

// PinCursor is Pin, plus the position in the log at which the view was published.
func (ix *Indexer[T]) PinCursor() *Cursor[T] {
	for {
		if ix.dirty.Load() {
			ix.publishQuiet()
		}
		if c := ix.current.Load(); c.pins.pin() {
			return c
		}
	}
}

// Latest returns the newest View without pinning it. Only its fields, Tail and Len
// may be used: its objects may be superseded at any time.
func (ix *Indexer[T]) Latest() *Cursor[T] { return ix.current.Load() }

// Since returns the position from which a reader that has seen everything up to
// resourceVersion goes on; see [changelog.Log.Since]. It waits for the writer if
// the store has reached that version and the log has not.
func (ix *Indexer[T]) Since(resourceVersion uint64) (*changelog.Position[Event[T]], bool) {
	if p, ok := ix.log.Since(resourceVersion); ok || ix.current.Load().ResourceVersion < resourceVersion {
		return p, ok
	}
	// A View is published before its events: once the writer is done, the log has
	// them.
	ix.writer.Lock()
	defer ix.writer.Unlock()
	return ix.log.Since(resourceVersion)
}

// Relay returns the relay that reads the log on behalf of slow subscribers.
func (ix *Indexer[T]) Relay() *changelog.Relay[Event[T]] { return &ix.relay }

// Version returns the resourceVersion up to which a scope has been seen, and
// whether the scope has been listed: without a list, nothing is known about earlier
// changes. The scope is one of Options.Namespaces, or the empty string if there are
// none. Version waits for the writer.
func (ix *Indexer[T]) Version(namespace string) (version uint64, listed bool) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	s := ix.scopes.of(namespace)
	return s.version, s.listed
}

// Confirm records that nothing happened between v and resourceVersion, as a bookmark
// does. If v is not the newest View any more, Confirm does nothing and returns
// false. It waits for the writer.
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

// PinSince returns the newest View, pinned, and the events from resourceVersion to
// it. The caller must release the View. PinSince returns false if [Indexer.Since]
// does.
func (ix *Indexer[T]) PinSince(resourceVersion uint64) (*View[T], []Event[T], bool) {
	for {
		from, ok := ix.Since(resourceVersion)
		if !ok {
			return nil, nil, false
		}
		now := ix.PinCursor() // not before from
		var events []Event[T]
		p := from
		for p != now.tail {
			b := p.Next()
			if b == nil { // the View is published just before its events
				runtime.Gosched()
				break
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

// Stats returns the present counters. If there are quiet changes to publish, it
// waits for the writer.
func (ix *Indexer[T]) Stats() Stats {
	if ix.dirty.Load() {
		ix.publishQuiet()
	}
	v := ix.current.Load()
	return Stats{Objects: v.Len(), Bytes: ix.bytes.Load(), Events: v.tail.Seq, Pinned: int(ix.pinned.Load()), Retained: ix.log.Retained(v.tail)}
}
