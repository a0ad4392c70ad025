package kubeapi

import "container/list"

// sizedLRU is a map that evicts the least recently used entries when all take more than max
// bytes. It is not safe for concurrent use.
type sizedLRU[K comparable, V any] struct {
	max, size int64
	entries   map[K]*list.Element
	order     list.List // of *lruEntry[K, V], the most recently used first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func newSizedLRU[K comparable, V any](max int64) sizedLRU[K, V] {
	return sizedLRU[K, V]{max: max, entries: map[K]*list.Element{}}
}

// get returns the value of a key, which becomes the most recently used one.
func (l *sizedLRU[K, V]) get(k K) (value V, ok bool) {
	e, ok := l.entries[k]
	if !ok {
		return value, false
	}
	l.order.MoveToFront(e)
	return e.Value.(*lruEntry[K, V]).value, true
}

// add adds an entry of a size. The key must be new.
func (l *sizedLRU[K, V]) add(k K, value V, size int64) {
	l.entries[k] = l.order.PushFront(&lruEntry[K, V]{k, value, size})
	l.size += size
	for l.size > l.max {
		last := l.order.Remove(l.order.Back()).(*lruEntry[K, V])
		delete(l.entries, last.key)
		l.size -= last.size
	}
}
