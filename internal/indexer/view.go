package indexer

import (
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// Cursor is a [View] with its position in the log. A Cursor keeps every later
// event in memory, so a reader that needs the state alone keeps the View instead.
type Cursor[T object.Object] struct {
	*View[T]
	tail *changelog.Position[Event[T]]
}

// Tail returns the position of the view in the log. A reader that starts there
// sees every later change once.
func (c *Cursor[T]) Tail() *changelog.Position[Event[T]] { return c.tail }

// View is a consistent snapshot of the store at one resourceVersion. Reading it
// takes no lock and blocks nobody.
//
// A View from [Indexer.Pin] is readable until [View.Release]. While it is pinned,
// the store keeps at most one superseded version of each object for it.
type View[T object.Object] struct {
	// ResourceVersion of the store: that of the last event, list or bookmark. It
	// is 0 before the first list, and if the source's versions are not decimal
	// numbers.
	ResourceVersion uint64
	// Synced says that the store has received a complete list since it was created
	// or last emptied.
	Synced bool

	// Generation identifies the objects that the View sees: two views of a store
	// with the same Generation see the same objects. It grows with every change,
	// but not with a bookmark, which only advances the version.
	Generation uint64

	epoch uint64
	order *btree.BTreeG[*slot[T]]
	ix    *Indexer[T]
	// indexes are those that existed when the View was published.
	indexes []indexCopy[T]
	owners  *btree.BTreeG[owned[T]] // nil: there is no index of owners
	pins    *pins
}

// pins counts the pins of a View. It is all that the writer keeps of a superseded
// View: only readers keep the View itself, so it is freed with the last of them
// even if the store is not written to any more.
type pins struct {
	epoch uint64
	count atomic.Int64 // or retired
}

// retired is the count of a View that cannot be pinned any more: the writer has
// cut, or may cut, the versions that only this View sees.
const retired = -1 << 32

// pin adds a pin. It returns false if the View is retired.
func (p *pins) pin() bool {
	for {
		n := p.count.Load()
		if n < 0 {
			return false
		}
		if p.count.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// retire retires the View. It returns false if the View is pinned or has been
// retired before.
func (p *pins) retire() bool { return p.count.CompareAndSwap(0, retired) }

// Release ends a pin. The caller must not read the View any more.
func (v *View[T]) Release() {
	if v.pins.count.Add(-1) < 0 {
		panic("indexer: View released more often than pinned")
	}
}

// Len is the number of objects.
func (v *View[T]) Len() int { return v.order.Len() }

// Get returns the object with the given key.
func (v *View[T]) Get(key string) (T, bool) {
	if s, ok := v.ix.slots.Load(key); ok {
		if version := s.at(v.epoch); version != nil {
			return version.object, !version.deleted()
		}
	}
	// The key has no slot now, or a later one. The View may have an earlier slot.
	if s, ok := v.order.Get(&slot[T]{key: key}); ok {
		if version := s.at(v.epoch); version != nil && !version.deleted() {
			return version.object, true
		}
	}
	var none T
	return none, false
}

// slot holds the versions of one object, from its creation to its deletion. It
// points at the newest version, which links to the older ones that pinned views
// need.
type slot[T object.Object] struct {
	key    string
	newest atomic.Pointer[version[T]]

	// Only the writer uses these. The first two are of the newest version. They are
	// here so that comparing versions does not touch objects that have left the CPU's
	// caches, and so that a version takes 32 bytes even if T is an interface.
	uid             uint64 // hash of the uid
	resourceVersion uint64
	listed          bool  // the list that is being applied contains the object
	history         int32 // 1 + index in Indexer.history; 0: not in it
}

// version is one version of an object.
type version[T object.Object] struct {
	object T
	// stamp is twice the epoch of the first View that sees the version, plus
	// tombstone if the object is deleted.
	stamp uint64
	older atomic.Pointer[version[T]]
}

const tombstone = 1

// epoch returns the epoch of the first View that sees the version.
func (v *version[T]) epoch() uint64 { return v.stamp / 2 }

// deleted reports whether the version is a tombstone.
func (v *version[T]) deleted() bool { return v.stamp&tombstone != 0 }

// at returns the version that a View of the given epoch sees, or nil if the
// object was created after that.
func (s *slot[T]) at(epoch uint64) *version[T] {
	v := s.newest.Load()
	for v != nil && v.epoch() > epoch {
		v = v.older.Load()
	}
	return v
}
