package share

import (
	"hash/maphash"
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// memo remembers what encodings were decoded to. It is asked for every part of
// every object, by several goroutines at once, so asking takes no lock.
//
// What it holds is bounded, in number and in bytes. When it is full, what has not
// been asked for since the last time it was full is forgotten.
type memo struct {
	seed  maphash.Seed
	table atomic.Pointer[memoTable]

	mu    sync.Mutex // held by whoever changes the table, and for what follows
	count int
	bytes int
	// candidates are parts that have been seen once lately, by the low bits of
	// their hash.
	candidates []candidate
}

// candidate is a part of some object that may become known. Its encoding is not
// there any more: that it is the right one has to be looked at.
type candidate struct {
	of    *species
	hash  uint64
	value unsafe.Pointer
	count int // of the elements of an array
}

// memoTable is a hash table of small buckets.
type memoTable struct {
	buckets []bucket
	past    *past
}

// past is what has been seen lately.
type past struct {
	seen  []atomic.Uint32 // by the low bits of a hash: the high bits of the last one there
	count int             // of the parts seen for the first time, under memo.mu
}

type bucket [4]atomic.Pointer[known]

// known is a part that has been decoded. It is immutable but for used.
type known struct {
	of    *species
	wire  string         // its encoding, which strings in the part may lie in
	value unsafe.Pointer // a message, an array, a map, or nil for a string
	used  atomic.Bool    // since the last sweep
}

const (
	memoSmallest = 1 << 6  // buckets
	memoLargest  = 1 << 13 // buckets: 32k parts
	memoBytes    = 8 << 20
	pastSmallest = 1 << 12
	pastLargest  = 1 << 17
	// longest is where a part is too long to be remembered.
	longest = 256 << 10
	// candidatesOf is how much farther back something is remembered to have been
	// seen than what it was. Candidates may be parts of objects that are gone.
	candidatesOf = 16
)

func newMemo() *memo {
	return &memo{seed: maphash.MakeSeed()}
}

// begin makes the tables, which a memo that is never asked does without.
func (m *memo) begin() {
	if m.table.Load() == nil {
		m.forget()
	}
}

func (m *memo) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count, m.bytes, m.candidates = 0, 0, make([]candidate, pastSmallest/candidatesOf)
	m.table.Store(&memoTable{make([]bucket, memoSmallest), &past{seen: make([]atomic.Uint32, pastSmallest)}})
}

// find returns the part of a species whose encoding is wire, nil if it is not
// known. Then again says that the encoding has been asked for lately, and that
// the part should be remembered.
func (m *memo) find(of *species, wire []byte) (k *known, hash uint64, again bool) {
	hash = maphash.Bytes(m.seed, wire) ^ of.salt
	t := m.table.Load()
	b := &t.buckets[hash&uint64(len(t.buckets)-1)]
	for i := range b {
		k := b[i].Load()
		if k != nil && k.of == of && k.wire == string(wire) {
			if !k.used.Load() {
				k.used.Store(true)
			}
			return k, hash, false
		}
	}
	if len(wire) > longest {
		return nil, hash, false
	}
	return nil, hash, t.past.again(hash)
}

// again reports whether a hash has been seen lately. There is room for two in
// every place, so that two that always come together do not drive each other out.
func (p *past) again(hash uint64) bool {
	at, tag := hash&uint64(len(p.seen)-2), uint32(hash>>32)|1
	newer := p.seen[at].Load()
	if newer == tag || p.seen[at+1].Load() == tag {
		return true
	}
	p.seen[at+1].Store(newer)
	p.seen[at].Store(tag)
	return false
}

// remember adds a part.
func (m *memo) remember(hash uint64, k *known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	if m.count >= 2*len(t.buckets) && len(t.buckets) < memoLargest {
		t = m.grow(t)
	}
	if m.bytes+len(k.wire) > memoBytes {
		m.sweep(t)
	}
	m.count++
	m.bytes += len(k.wire)
	m.place(t, hash, k)
}

// place puts a part into its bucket, in the place of one that is not used much if
// there is no room.
func (m *memo) place(t *memoTable, hash uint64, k *known) {
	b := &t.buckets[hash&uint64(len(t.buckets)-1)]
	victim := int(hash>>62) % len(b)
	for i := range b {
		if b[i].Load() == nil {
			b[i].Store(k)
			return
		}
	}
	for i := range b {
		if old := b[i].Load(); !old.used.Load() {
			victim = i
		}
	}
	for i := range b { // another chance for those that are used
		b[i].Load().used.Store(false)
	}
	m.count--
	m.bytes -= len(b[victim].Load().wire)
	b[victim].Store(k)
}

func (m *memo) grow(old *memoTable) *memoTable {
	t := &memoTable{make([]bucket, 2*len(old.buckets)), old.past}
	for i := range old.buckets {
		for j := range old.buckets[i] {
			if k := old.buckets[i][j].Load(); k != nil {
				m.place(t, maphash.String(m.seed, k.wire)^k.of.salt, k)
			}
		}
	}
	m.table.Store(t)
	return t
}

// nominate adds candidates.
func (m *memo) nominate(all []candidate) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.table.Load()
	p := t.past
	if p.count += len(all); p.count > len(p.seen) && len(p.seen) < pastLargest {
		m.table.Store(&memoTable{t.buckets, &past{seen: make([]atomic.Uint32, 2*len(p.seen))}})
		m.candidates = make([]candidate, 2*len(m.candidates))
	}
	for _, c := range all {
		m.candidates[c.hash&uint64(len(m.candidates)-1)] = c
	}
}

// elect returns the candidate that is equal to a part, and the part itself if
// there is none.
func (m *memo) elect(part candidate) unsafe.Pointer {
	m.mu.Lock()
	c := m.candidates[part.hash&uint64(len(m.candidates)-1)]
	m.mu.Unlock()
	if c.hash == part.hash && c.of == part.of && c.count == part.count && reflect.DeepEqual(c.read(), part.read()) {
		return c.value
	}
	return part.value
}

// read is the part as a Go value.
func (c *candidate) read() any {
	switch c.of.typ.Kind() {
	case reflect.Map:
		return reflect.NewAt(c.of.typ, unsafe.Pointer(&c.value)).Elem().Interface()
	case reflect.Slice:
		return reflect.SliceAt(c.of.typ.Elem(), c.value, c.count).Interface()
	}
	return reflect.NewAt(c.of.typ, c.value).Interface()
}

// sweep forgets what has not been used since the last sweep.
func (m *memo) sweep(t *memoTable) {
	for i := range t.buckets {
		for j := range t.buckets[i] {
			at := &t.buckets[i][j]
			k := at.Load()
			if k != nil && !k.used.Swap(false) {
				at.Store(nil)
				m.count--
				m.bytes -= len(k.wire)
			}
		}
	}
}
