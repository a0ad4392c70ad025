package access

import (
	"container/heap"
	"container/list"
	"sync"
	"time"
)

// shares remembers a bounded number of values for a time. When there are too
// many, the oldest value of the owner with the most goes: one that asks for ever
// more pushes out its own, and no owner has less room than an equal share.
type shares[V any] struct {
	most int

	mu     sync.Mutex
	kept   map[digest]*list.Element // of *kept[V], in its owner's list
	owners map[string]*owner
	sizes  bySize
}

type kept[V any] struct {
	key   digest
	of    *owner
	value V
	until time.Time
}

// owner has the values of one owner, the last used first.
type owner struct {
	name   string
	values list.List
	at     int // in the heap
}

func newShares[V any](most int) *shares[V] {
	return &shares[V]{most: most, kept: map[digest]*list.Element{}, owners: map[string]*owner{}}
}

func (s *shares[V]) get(key digest) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.use(key)
}

// use is get with the lock held.
func (s *shares[V]) use(key digest) (value V, ok bool) {
	e := s.kept[key]
	if e == nil {
		return value, false
	}
	k := e.Value.(*kept[V])
	if !time.Now().Before(k.until) {
		s.remove(e)
		return value, false
	}
	k.of.values.MoveToFront(e)
	return k.value, true
}

// put remembers a value, if change makes one of what is remembered until now.
func (s *shares[V]) put(key digest, of string, change func(old V, ok bool) (V, time.Time, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, until, yes := change(s.use(key))
	if !yes {
		return
	}
	if e := s.kept[key]; e != nil {
		s.remove(e)
	}
	o := s.owners[of]
	if o == nil {
		o = &owner{name: of}
		s.owners[of] = o
		heap.Push(&s.sizes, o)
	}
	s.kept[key] = o.values.PushFront(&kept[V]{key, o, value, until})
	heap.Fix(&s.sizes, o.at)
	for len(s.kept) > s.most {
		s.remove(s.sizes[0].values.Back())
	}
}

func (s *shares[V]) remove(e *list.Element) {
	k := e.Value.(*kept[V])
	delete(s.kept, k.key)
	k.of.values.Remove(e)
	heap.Fix(&s.sizes, k.of.at)
	if k.of.values.Len() == 0 {
		heap.Remove(&s.sizes, k.of.at)
		delete(s.owners, k.of.name)
	}
}

// bySize is a heap of owners, the one with the most values first.
type bySize []*owner

func (b bySize) Len() int           { return len(b) }
func (b bySize) Less(i, j int) bool { return b[i].values.Len() > b[j].values.Len() }
func (b bySize) Swap(i, j int)      { b[i], b[j] = b[j], b[i]; b[i].at, b[j].at = i, j }
func (b *bySize) Push(o any)        { o.(*owner).at = len(*b); *b = append(*b, o.(*owner)) }
func (b *bySize) Pop() any {
	last := (*b)[len(*b)-1]
	*b = (*b)[:len(*b)-1]
	return last
}
