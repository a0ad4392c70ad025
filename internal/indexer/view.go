package indexer

import (
	"sync/atomic"

	"github.com/tidwall/btree"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/object"
)

// Moment is a [View] and the place in the log where the news after it begins.
// Whoever keeps a Moment keeps all that news in memory; who only reads the state
// keeps its View.
type Moment[T object.Object] struct {
	*View[T]
	tail *changelog.Position[Event[T]]
}

// Tail is where the log goes on after this view: a reader that starts there
// sees every change since, each once.
func (m *Moment[T]) Tail() *changelog.Position[Event[T]] { return m.tail }

// View is one consistent state of the store, and the resourceVersion it is of.
// Reading it takes no lock and delays nobody.
//
// A View from [Indexer.Pin] stays readable until [View.Release]; while it is
// pinned the store keeps at most one superseded version of each object for it.
type View[T object.Object] struct {
	// ResourceVersion is the version of the store: that of the last event,
	// list or bookmark. It is 0 before the first list and where the source's
	// versions are not decimal numbers.
	ResourceVersion uint64
	// Synced says that the store has held a complete list since it was made or
	// last emptied.
	Synced bool

	// Generation says which objects the View sees: two Views of a store with the
	// same one see the same. It grows, but not with versions alone, as bookmarks
	// bring them.
	Generation uint64

	epoch uint64
	order *btree.BTreeG[*slot[T]]
	ix    *Indexer[T]
	// indexes do not change; those added later are not among them.
	indexes []indexCopy[T]
	hold    *hold
}

// hold is what the writer keeps of a View that is superseded: who still reads
// it, and what versions that takes. The rest is up to the readers, so that it
// goes with them even if nothing is written any more.
type hold struct {
	epoch uint64
	// pins counts the readers; retired says that the writer has let go of the
	// versions only this View would need.
	pins atomic.Int64
}

const retired = -1 << 32

// pin reports whether the view could be pinned, which it cannot once retired.
func (h *hold) pin() bool {
	for {
		n := h.pins.Load()
		if n < 0 {
			return false
		}
		if h.pins.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// retire lets go of a view that nobody has pinned.
func (h *hold) retire() bool { return h.pins.CompareAndSwap(0, retired) }

// Release ends a pin. The view must not be read by its holder any more.
func (v *View[T]) Release() {
	if v.hold.pins.Add(-1) < 0 {
		panic("indexer: View released more often than pinned")
	}
}

// Len is the number of objects.
func (v *View[T]) Len() int { return v.order.Len() }

// Get returns the object with the given key as it was in this view.
func (v *View[T]) Get(key string) (T, bool) {
	if s, ok := v.ix.slots.Load(key); ok {
		if version := s.at(v.epoch); version != nil {
			return version.object, !version.deleted()
		}
	}
	// Not there now, or another object under the same key: it may still have
	// been there then.
	if s, ok := v.order.Get(&slot[T]{key: key}); ok {
		if version := s.at(v.epoch); version != nil && !version.deleted() {
			return version.object, true
		}
	}
	var none T
	return none, false
}

// slot is the place of one object in the store, from its creation to its
// deletion. It points at the newest version; older ones hang behind it while a
// pinned View needs them.
type slot[T object.Object] struct {
	key    string
	newest atomic.Pointer[version[T]]
	// The writer's own: the uid of the newest version, whether the list that is being
	// applied has the object, and its place among those that trail, from 1 on.
	uid    uint64
	listed bool
	trail  int32
}

// version is one state of an object.
type version[T object.Object] struct {
	object T
	// from is twice the epoch of the first View that has it, plus gone if there is
	// no object any more.
	from uint64
	// number is the resourceVersion of the object: whoever compares versions need
	// not touch objects that have long left the processor's caches.
	number uint64
	older  atomic.Pointer[version[T]]
}

const gone = 1

// epoch is that of the first View that has the version.
func (v *version[T]) epoch() uint64 { return v.from / 2 }

// deleted says that from this version on there is no object.
func (v *version[T]) deleted() bool { return v.from&gone != 0 }

// at is the version that a View of the given epoch sees, or nil if the object
// is younger than that.
func (s *slot[T]) at(epoch uint64) *version[T] {
	v := s.newest.Load()
	for v != nil && v.epoch() > epoch {
		v = v.older.Load()
	}
	return v
}
