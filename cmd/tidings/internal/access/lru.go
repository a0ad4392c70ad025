package access

import (
	"container/heap"
	"container/list"
	"sync"
	"time"
)

// fairLRU is a bounded cache whose values expire. When it is full, it evicts the
// least recently used value of the owner with the most values. So an owner that
// adds without end evicts its own, and each owner has room for an equal share.
type fairLRU[V any] struct {
	max int

	mu     sync.Mutex
	items  map[digest]*list.Element // of *item[V], in the owner's list
	owners map[string]*owner
	heap   ownerHeap
}

type item[V any] struct {
	key   digest
	owner *owner
	value V
	until time.Time
}

// owner holds the items of one owner, the most recently used first.
type owner struct {
	name  string
	items list.List
	index int // in the heap
}

func newFairLRU[V any](size int) *fairLRU[V] {
	return &fairLRU[V]{max: size, items: map[digest]*list.Element{}, owners: map[string]*owner{}}
}

func (l *fairLRU[V]) get(key digest) (value V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lookup(key)
}

// lookup is get with l.mu held.
func (l *fairLRU[V]) lookup(key digest) (value V, ok bool) {
	e := l.items[key]
	if e == nil {
		return value, false
	}
	i := e.Value.(*item[V])
	if !time.Now().Before(i.until) {
		l.remove(e)
		return value, false
	}
	i.owner.items.MoveToFront(e)
	return i.value, true
}

// put calls update with the current value and stores what it returns, unless store
// is false. The value then belongs to the owner.
func (l *fairLRU[V]) put(key digest, ownerName string, update func(old V, ok bool) (value V, until time.Time, store bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	value, until, store := update(l.lookup(key))
	if !store {
		return
	}
	if e := l.items[key]; e != nil {
		l.remove(e)
	}
	o := l.owners[ownerName]
	if o == nil {
		o = &owner{name: ownerName}
		l.owners[ownerName] = o
		heap.Push(&l.heap, o)
	}
	l.items[key] = o.items.PushFront(&item[V]{key, o, value, until})
	heap.Fix(&l.heap, o.index)
	for len(l.items) > l.max {
		l.remove(l.heap[0].items.Back())
	}
}

func (l *fairLRU[V]) remove(e *list.Element) {
	i := e.Value.(*item[V])
	delete(l.items, i.key)
	i.owner.items.Remove(e)
	heap.Fix(&l.heap, i.owner.index)
	if i.owner.items.Len() == 0 {
		heap.Remove(&l.heap, i.owner.index)
		delete(l.owners, i.owner.name)
	}
}

// ownerHeap has the owner with the most items on top.
type ownerHeap []*owner

func (h ownerHeap) Len() int           { return len(h) }
func (h ownerHeap) Less(i, j int) bool { return h[i].items.Len() > h[j].items.Len() }
func (h ownerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].index, h[j].index = i, j }
func (h *ownerHeap) Push(o any)        { o.(*owner).index = len(*h); *h = append(*h, o.(*owner)) }
func (h *ownerHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
