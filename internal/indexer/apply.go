package indexer

import (
	"strings"
	"unsafe"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
)

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
	var arrivals arrivals
	for i := range deltas {
		if i%len(arrivals) == 0 {
			n := min(len(arrivals), len(deltas)-i)
			look(ix, &arrivals, n, func(j int) (T, bool) {
				return deltas[i+j].Object, deltas[i+j].List == nil && deltas[i+j].Type != delta.Sync
			})
		}
		d, is := &deltas[i], &arrivals[i%len(arrivals)]
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
			ix.sweep(d.List.Namespace) // of what no list has
			ix.rv, ix.synced = ix.scopes.version(), false
			ix.publish(changelog.Emptied)
			pending = false
			continue
		case delta.Bookmark:
			ix.advance(d.List.Namespace, object.Version(d.List.ResourceVersion))
		case delta.Deleted:
			ix.remove(d.Object, is)
		default:
			ix.set(d.Object, is, d.Type == delta.Updated)
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

// Empty deletes everything and forgets the resourceVersion: the store is as
// new, but readers of the log see each object go.
func (ix *Indexer[T]) Empty() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	ix.order.Scan(func(s *slot[T]) bool {
		last := s.newest.Load().object
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: last, Old: last, ResourceVersion: ix.rv, Unseen: true})
		ix.mark(s, &version[T]{from: gone})
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
func (ix *Indexer[T]) set(o T, is *arrival, updated bool) {
	s := ix.lookup(is)
	if s == nil {
		ix.advance(is.namespace, is.number)
		ix.insert(o, is)
		event := Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv}
		if updated && !ix.synced && !ix.literal {
			event.Type = Updated
		}
		ix.events = append(ix.events, event)
		return
	}
	if held := s.newest.Load(); same(s, held, o, is) || stale(s, held, is) {
		return // told already
	}
	ix.advance(is.namespace, is.number)
	ix.change(s, o, is)
}

// change puts o in the place of what there is. Another uid is another object: the
// old one goes, unseen, before the new one comes.
func (ix *Indexer[T]) change(s *slot[T], o T, is *arrival) {
	old := s.newest.Load().object
	if s.uid != is.uid {
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: old, Old: old, ResourceVersion: ix.rv, Unseen: true},
			Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv})
	} else {
		same := ix.same != nil && ix.same(old, o)
		ix.events = append(ix.events, Event[T]{Type: Updated, Object: o, Old: old, ResourceVersion: ix.rv, Same: same})
	}
	ix.account(o, 1)
	ix.account(old, -1)
	ix.reindex(s, old, o, true, true)
	s.uid = is.uid
	ix.mark(s, &version[T]{object: o, number: is.number})
}

// remove takes o out of the store.
func (ix *Indexer[T]) remove(o T, is *arrival) {
	s := ix.lookup(is)
	if s == nil {
		ix.advance(is.namespace, is.number)
		if !ix.synced || ix.literal { // it was there before the store began to look
			ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, ResourceVersion: ix.rv})
		}
		return
	}
	held := s.newest.Load()
	if stale(s, held, is) {
		return
	}
	ix.advance(is.namespace, is.number)
	ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, Old: held.object, ResourceVersion: ix.rv})
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
	if ix.order.Len() == 0 && !quiet {
		ix.events = make([]Event[T], 0, len(list.Items)) // each is added
	}
	var arrivals arrivals
	for i, o := range list.Items {
		if i%len(arrivals) == 0 {
			n := min(len(arrivals), len(list.Items)-i)
			look(ix, &arrivals, n, func(j int) (T, bool) { return list.Items[i+j], true })
		}
		is := &arrivals[i%len(arrivals)]
		s := ix.lookup(is)
		if s == nil {
			ix.insert(o, is).listed = true
			ix.events = append(ix.events, Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv, Initial: initial})
			continue
		}
		s.listed = true
		if !same(s, s.newest.Load(), o, is) {
			ix.change(s, o, is)
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

// sweep drops everything in a scope that the present list does not have.
func (ix *Indexer[T]) sweep(namespace string) {
	var gone []*slot[T]
	missing := func(s *slot[T]) bool {
		if !s.listed {
			gone = append(gone, s)
		}
		s.listed = false
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
func (ix *Indexer[T]) insert(o T, is *arrival) *slot[T] {
	s := &slot[T]{key: object.Key(is.namespace, is.name), uid: is.uid}
	ix.mark(s, &version[T]{object: o, number: is.number})
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
	ix.mark(s, &version[T]{from: gone})
	ix.slots.Delete(s.key)
	ix.order.Delete(s)
	ix.reshaped = true
}

// lookup finds the slot of an object without making a string of its key.
func (ix *Indexer[T]) lookup(is *arrival) *slot[T] {
	ix.scratch = appendKey(ix.scratch[:0], is.namespace, is.name)
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
