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
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/puzpuzpuz/xsync/v4"
	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/codec"
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
	relay   changelog.Relay[Event[T]]
	current atomic.Pointer[Moment[T]]
	size    func(T) int
	same    func(old, new T) bool
	literal bool
	bytes   atomic.Int64
	pinned  atomic.Int64

	// dirty says that there are quiet changes that no View has. The next reader
	// who needs one publishes it.
	dirty atomic.Bool

	pivots sync.Pool // of *slot[T] that walks have begun at
	before slot[T]   // one whose key is in front of all others; never changed

	writer   sync.Mutex // held by whoever writes; what follows is the writer's own
	order    *btree.BTreeG[*slot[T]]
	reshaped bool // order differs from the current View's
	hidden   bool // the current View is a stand-in that nobody can pin
	epoch    uint64
	scopes   scopes
	rv       uint64 // of the scope that is furthest behind
	synced   bool   // every scope has been listed
	events   []Event[T]
	touched  []*slot[T] // slots changed since the last View
	live     []*hold    // of superseded views that somebody has pinned, oldest first
	trailing []*slot[T] // of which older versions are kept
	freed    bool       // a View has been released since the last sweep of trailing
	unswept  int        // slots changed since then
	swept    time.Time  // when that was
	scratch  []byte
	seed     maphash.Seed // of uids
	indexes  []*index[T]
	was, is  []string // values of indexes
}

// New returns an empty store.
func New[T object.Object](opts Options[T]) *Indexer[T] {
	ix := &Indexer[T]{
		slots:   xsync.NewMap[string, *slot[T]](),
		log:     changelog.New[Event[T]](opts.Retain),
		size:    opts.Size,
		same:    opts.Same,
		literal: opts.Literal,
		seed:    maphash.MakeSeed(),
		scopes:  newScopes(opts.Namespaces),
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
		if v := s.newest.Load(); !v.deleted() {
			return v.object, true
		}
	}
	var none T
	return none, false
}

// GetNamed is Get of [object.Key], without making a string of it.
func (ix *Indexer[T]) GetNamed(namespace, name string) (T, bool) {
	buf := keys.Get().(*[]byte)
	defer keys.Put(buf)
	*buf = appendKey((*buf)[:0], namespace, name)
	return ix.Get(unsafe.String(unsafe.SliceData(*buf), len(*buf)))
}

// Held returns an object if this very version of it is in the store.
func (ix *Indexer[T]) Held(id codec.Identity) (T, bool) {
	if o, ok := ix.GetNamed(id.Namespace, id.Name); ok && string(o.GetUID()) == id.UID && o.GetResourceVersion() == id.ResourceVersion {
		return o, true
	}
	var none T
	return none, false
}

// keys are for looking up objects without making a string of each one's key.
var keys = sync.Pool{New: func() any { return new([]byte) }}

// appendKey appends what [object.Key] is to dst.
func appendKey(dst []byte, namespace, name string) []byte {
	if namespace != "" {
		dst = append(append(dst, namespace...), '/')
	}
	return append(dst, name...)
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

// Latest returns the newest View without pinning it: good for its position and
// counts, and for nothing else, since its objects may be superseded meanwhile.
func (ix *Indexer[T]) Latest() *Moment[T] { return ix.current.Load() }

// Since is [changelog.Log.Since]: where a reader that has seen everything up to
// resourceVersion goes on.
func (ix *Indexer[T]) Since(resourceVersion uint64) (*changelog.Position[Event[T]], bool) {
	if p, ok := ix.log.Since(resourceVersion); ok || ix.current.Load().ResourceVersion < resourceVersion {
		return p, ok
	}
	// Whoever has seen a View may be here before the news of it is in the log.
	ix.writer.Lock() // the writer is done with it
	defer ix.writer.Unlock()
	return ix.log.Since(resourceVersion)
}

// Relay waits for news of the log on behalf of those who do not do so themselves.
func (ix *Indexer[T]) Relay() *changelog.Relay[Event[T]] { return &ix.relay }

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
		from, ok := ix.Since(resourceVersion)
		if !ok {
			return nil, nil, false
		}
		now := ix.PinMoment() // which is not before from
		var events []Event[T]
		p := from
		for p != now.tail {
			b := p.Next()
			if b == nil { // the View is published a moment before its events
				runtime.Gosched()
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
