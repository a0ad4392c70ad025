package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// memo maps encodings to the parts decoded from them. Several goroutines look up
// every part of every object, so a lookup takes no lock.
//
// The number of entries and the bytes of their encodings are bounded. When the memo
// is full, it drops the entries that were not used since it was last full.
type memo struct {
	seed  maphash.Seed
	table atomic.Pointer[memoTable]

	mu    sync.Mutex // guards the fields below and changes of the table
	count int
	bytes int
	// candidates are parts that have been seen once recently, indexed by the low
	// bits of their hash.
	candidates []candidate
}

// candidate is a part of an object that may become an entry. Its encoding is gone,
// so it must be compared with the part itself.
type candidate struct {
	of    *partType
	hash  uint64
	value unsafe.Pointer
	count int // of the elements of an array
}

// memoTable is a hash table of small buckets.
type memoTable struct {
	buckets []bucket
	recent  *recentHashes
}

// recentHashes are the hashes of encodings that have been seen recently.
type recentHashes struct {
	seen  []atomic.Uint32 // their high bits, indexed by their low bits
	count int             // of the parts seen for the first time; guarded by memo.mu
}

type bucket [4]atomic.Pointer[memoEntry]

// memoEntry is a part that has been decoded. Only used changes.
type memoEntry struct {
	of    *partType
	wire  string         // its encoding, which strings of the part may point into
	value unsafe.Pointer // a message, an array or a map; nil for a string
	used  atomic.Bool    // since the last sweep
}

const (
	minBuckets   = 1 << 6  // buckets
	maxBuckets   = 1 << 13 // buckets: 32k parts
	maxMemoBytes = 8 << 20
	minRecent    = 1 << 12
	maxRecent    = 1 << 17
	// maxEncoding is the length of the longest encoding that is kept.
	maxEncoding = 256 << 10
	// hashesPerCandidate is how many recent hashes there are for each candidate.
	// Candidates are fewer because they may keep parts of deleted objects in memory.
	hashesPerCandidate = 16
)

func newMemo() *memo {
	return &memo{seed: maphash.MakeSeed()}
}

// begin makes the tables on first use.
func (m *memo) begin() {
	if m.table.Load() == nil {
		m.reset()
	}
}

func (m *memo) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count, m.bytes, m.candidates = 0, 0, make([]candidate, minRecent/hashesPerCandidate)
	m.table.Store(&memoTable{make([]bucket, minBuckets), &recentHashes{seen: make([]atomic.Uint32, minRecent)}})
}

// find returns the entry for the encoding wire of a part of the given type, or nil.
// With nil, again reports whether the encoding has been looked up recently; if so,
// the part should be added.
func (m *memo) find(of *partType, wire []byte) (e *memoEntry, hash uint64, again bool) {
	hash = maphash.Bytes(m.seed, wire) ^ of.salt
	t := m.table.Load()
	b := &t.buckets[hash&uint64(len(t.buckets)-1)]
	for i := range b {
		e := b[i].Load()
		if e != nil && e.of == of && e.wire == string(wire) {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return e, hash, false
		}
	}
	if len(wire) > maxEncoding {
		return nil, hash, false
	}
	return nil, hash, t.recent.seenBefore(hash)
}

// seenBefore reports whether a hash has been seen recently, and notes that it has.
// Each slot has room for two hashes, so that two that always come together do not
// evict each other.
func (r *recentHashes) seenBefore(hash uint64) bool {
	at, tag := hash&uint64(len(r.seen)-2), uint32(hash>>32)|1
	newer := r.seen[at].Load()
	if newer == tag || r.seen[at+1].Load() == tag {
		return true
	}
	r.seen[at+1].Store(newer)
	r.seen[at].Store(tag)
	return false
}

// add adds an entry.
func (m *memo) add(hash uint64, e *memoEntry) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if m.count >= 2*len(t.buckets) && len(t.buckets) < maxBuckets {
		t = m.grow(t)
	}
	if m.bytes+len(e.wire) > maxMemoBytes {
		m.sweep(t)
	}
	m.count++
	m.bytes += len(e.wire)
	m.insert(t, hash, e)
}

// insert puts an entry into its bucket. If the bucket is full, an entry that has not
// been used recently is evicted, if there is one.
func (m *memo) insert(t *memoTable, hash uint64, e *memoEntry) {
	b := &t.buckets[hash&uint64(len(t.buckets)-1)]
	victim := int(hash>>62) % len(b)
	for i := range b {
		if b[i].Load() == nil {
			b[i].Store(e)
			return
		}
	}
	for i := range b {
		if old := b[i].Load(); !old.used.Load() {
			victim = i
		}
	}
	for i := range b { // used entries survive this time
		b[i].Load().used.Store(false)
	}
	m.count--
	m.bytes -= len(b[victim].Load().wire)
	b[victim].Store(e)
}

func (m *memo) grow(old *memoTable) *memoTable {
	t := &memoTable{make([]bucket, 2*len(old.buckets)), old.recent}
	for i := range old.buckets {
		for j := range old.buckets[i] {
			if e := old.buckets[i][j].Load(); e != nil {
				m.insert(t, maphash.String(m.seed, e.wire)^e.of.salt, e)
			}
		}
	}
	m.table.Store(t)
	return t
}

// addCandidates adds parts that have been seen for the first time.
func (m *memo) addCandidates(all []candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	p := t.recent
	if p.count += len(all); p.count > len(p.seen) && len(p.seen) < maxRecent {
		m.table.Store(&memoTable{t.buckets, &recentHashes{seen: make([]atomic.Uint32, 2*len(p.seen))}})
		m.candidates = make([]candidate, 2*len(m.candidates))
	}
	for _, c := range all {
		m.candidates[c.hash&uint64(len(m.candidates)-1)] = c
	}
}

// matchCandidate returns the candidate that is equal to a part, or the part itself
// if there is none.
func (m *memo) matchCandidate(part candidate) unsafe.Pointer {
	m.mu.Lock()
	c := m.candidates[part.hash&uint64(len(m.candidates)-1)]
	m.mu.Unlock()
	if c.hash == part.hash && c.of == part.of && c.count == part.count && reflect.DeepEqual(c.read(), part.read()) {
		return c.value
	}
	return part.value
}

// read returns the part as a Go value.
func (c *candidate) read() any {
	switch c.of.typ.Kind() {
	case reflect.Map:
		return reflect.NewAt(c.of.typ, unsafe.Pointer(&c.value)).Elem().Interface()
	case reflect.Slice:
		return reflect.SliceAt(c.of.typ.Elem(), c.value, c.count).Interface()
	}
	return reflect.NewAt(c.of.typ, c.value).Interface()
}

// sweep drops the entries that have not been used since the last sweep.
func (m *memo) sweep(t *memoTable) {
	for i := range t.buckets {
		for j := range t.buckets[i] {
			at := &t.buckets[i][j]
			e := at.Load()
			if e != nil && !e.used.Swap(false) {
				at.Store(nil)
				m.count--
				m.bytes -= len(e.wire)
			}
		}
	}
}
