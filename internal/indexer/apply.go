package indexer

import (
	"strings"
	"unsafe"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
)

// publishAt is the number of events after which a part of a batch is published.
// It is large enough for the cost of publishing not to matter, and small enough
// for subscribers to start soon and to find the events in the CPU's cache.
const publishAt = 1024

// Apply applies a batch of deltas in order and publishes the result. A relist
// becomes visible as a whole. Of other deltas, a long batch is published in
// parts of [publishAt] events. A batch of quiet deltas only is published when
// somebody asks for a View, so that a store that is written to one object at a
// time is not copied for each write.
func (ix *Indexer[T]) Apply(deltas []delta.Delta[T]) {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	pending := false // there are changes to publish that are not quiet
	var window metaWindow
	for i := range deltas {
		if i%len(window) == 0 {
			n := min(len(window), len(deltas)-i)
			prefetch(ix, &window, n, func(j int) (T, bool) {
				return deltas[i+j].Object, deltas[i+j].List == nil && deltas[i+j].Type != delta.Sync
			})
		}
		d, m := &deltas[i], &window[i%len(window)]
		if pending && len(ix.events) >= publishAt {
			ix.publish(changelog.Changes)
			pending = false
		}
		if ix.events == nil {
			ix.events = make([]Event[T], 0, min(len(deltas)-i, publishAt))
		}
		before := len(ix.events)
		if d.Quiet {
			ix.suspend()
		}
		switch d.Type {
		case delta.Sync:
			continue
		case delta.Replaced:
			if pending {
				ix.publish(changelog.Changes)
			}
			pending, before = false, 0
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
			ix.dropUnlisted(d.List.Namespace) // everything: no object is marked as listed
			ix.rv, ix.synced = ix.scopes.version(), false
			ix.publish(changelog.Emptied)
			pending = false
			continue
		case delta.Bookmark:
			ix.advance(d.List.Namespace, object.Version(d.List.ResourceVersion))
		case delta.Deleted:
			ix.remove(d.Object, m)
		default:
			ix.set(d.Object, m, d.Type == delta.Updated)
		}
		if d.Quiet {
			ix.dropQuiet(before)
			continue
		}
		pending = true
	}
	if pending {
		ix.publish(changelog.Changes)
	}
}

// Empty deletes every object and resets the resourceVersion. The store is as new,
// but readers of the log see each deletion.
func (ix *Indexer[T]) Empty() {
	ix.writer.Lock()
	defer ix.writer.Unlock()
	ix.order.Scan(func(s *slot[T]) bool {
		last := s.newest.Load().object
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: last, Old: last, ResourceVersion: ix.rv, Unseen: true})
		ix.supersede(s, &version[T]{stamp: tombstone})
		return true
	})
	ix.slots.Clear()
	ix.order, ix.orderChanged = newOrder[T](), true
	for _, in := range ix.indexes {
		in.tree.Clear()
		clear(in.failed)
		in.changed = true
	}
	ix.owners.empty()
	ix.bytes.Store(0)
	ix.scopes.reset()
	ix.rv, ix.synced = 0, false
	ix.publish(changelog.Emptied)
	ix.log.Forget()
}

// set makes o the newest version of its object. Before the first list the store
// cannot know whether an object is new, so it relies on the source's event type.
func (ix *Indexer[T]) set(o T, m *meta, updated bool) {
	s := ix.lookup(m)
	if s == nil {
		ix.advance(m.namespace, m.resourceVersion)
		ix.insert(o, m)
		event := Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv}
		if updated && !ix.synced && !ix.literal {
			event.Type = Updated
		}
		ix.events = append(ix.events, event)
		return
	}
	if same(s, o, m) || stale(s, m) {
		return // already in the log
	}
	ix.advance(m.namespace, m.resourceVersion)
	ix.change(s, o, m)
}

// change replaces the object of a slot by o. A different uid means a different
// object: the old one is deleted, unseen, before the new one is added.
func (ix *Indexer[T]) change(s *slot[T], o T, m *meta) {
	old := s.newest.Load().object
	if s.uid != m.uid {
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: old, Old: old, ResourceVersion: ix.rv, Unseen: true},
			Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv})
	} else {
		same := ix.same != nil && ix.same(old, o)
		ix.events = append(ix.events, Event[T]{Type: Updated, Object: o, Old: old, ResourceVersion: ix.rv, Same: same})
	}
	ix.addBytes(o, 1)
	ix.addBytes(old, -1)
	ix.reindex(s, old, o, true, true)
	s.uid, s.resourceVersion = m.uid, m.resourceVersion
	ix.supersede(s, &version[T]{object: o})
}

// remove deletes an object. o is its last state.
func (ix *Indexer[T]) remove(o T, m *meta) {
	s := ix.lookup(m)
	if s == nil {
		ix.advance(m.namespace, m.resourceVersion)
		if !ix.synced || ix.literal { // it existed before the store was listed
			ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, ResourceVersion: ix.rv})
		}
		return
	}
	if stale(s, m) {
		return
	}
	old := s.newest.Load().object
	ix.advance(m.namespace, m.resourceVersion)
	ix.events = append(ix.events, Event[T]{Type: Deleted, Object: o, Old: old, ResourceVersion: ix.rv})
	ix.drop(s)
}

// replace makes the store, or one namespace of it, hold exactly the listed items.
// In the log, deletions come first, then additions and changes in the order of the
// list.
func (ix *Indexer[T]) replace(list *delta.List[T], quiet bool) {
	initial := false
	if !quiet {
		initial = ix.scopes.list(list.Namespace, object.Version(list.ResourceVersion))
		ix.rv, ix.synced = ix.scopes.version(), ix.scopes.complete()
	}
	if ix.order.Len() == 0 && !quiet {
		ix.events = make([]Event[T], 0, len(list.Items)) // each is added
	}
	var window metaWindow
	for i, o := range list.Items {
		if i%len(window) == 0 {
			n := min(len(window), len(list.Items)-i)
			prefetch(ix, &window, n, func(j int) (T, bool) { return list.Items[i+j], true })
		}
		m := &window[i%len(window)]
		s := ix.lookup(m)
		if s == nil {
			ix.insert(o, m).listed = true
			ix.events = append(ix.events, Event[T]{Type: Added, Object: o, ResourceVersion: ix.rv, Initial: initial})
			continue
		}
		s.listed = true
		if !same(s, o, m) {
			ix.change(s, o, m)
		}
	}
	changed := ix.events
	ix.events = nil
	ix.dropUnlisted(list.Namespace)
	if len(ix.events) == 0 {
		ix.events = changed
	} else {
		ix.events = append(ix.events, changed...)
	}
}

// dropUnlisted deletes every object of a scope that is not marked as listed, and
// clears the marks.
func (ix *Indexer[T]) dropUnlisted(namespace string) {
	var missing []*slot[T]
	visit := func(s *slot[T]) bool {
		if !s.listed {
			missing = append(missing, s)
		}
		s.listed = false
		return true
	}
	if prefix := object.Key(namespace, ""); prefix == "" {
		ix.order.Scan(visit)
	} else {
		ix.order.Ascend(&slot[T]{key: prefix}, func(s *slot[T]) bool { return strings.HasPrefix(s.key, prefix) && visit(s) })
	}
	for _, s := range missing {
		last := s.newest.Load().object
		ix.events = append(ix.events, Event[T]{Type: Deleted, Object: last, Old: last, ResourceVersion: ix.rv, Unseen: true})
		ix.drop(s)
	}
}

// insert creates the slot of a new object.
func (ix *Indexer[T]) insert(o T, m *meta) *slot[T] {
	s := &slot[T]{key: object.Key(m.namespace, m.name), uid: m.uid, resourceVersion: m.resourceVersion}
	ix.supersede(s, &version[T]{object: o})
	ix.addBytes(o, 1)
	ix.slots.Store(s.key, s)
	ix.order.Set(s)
	var none T
	ix.reindex(s, none, o, false, true)
	ix.orderChanged = true
	return s
}

// drop removes a slot. Its newest version becomes a tombstone, for views that
// still see the slot.
func (ix *Indexer[T]) drop(s *slot[T]) {
	held := s.newest.Load().object
	ix.addBytes(held, -1)
	var none T
	ix.reindex(s, held, none, true, false)
	ix.supersede(s, &version[T]{stamp: tombstone})
	ix.slots.Delete(s.key)
	ix.order.Delete(s)
	ix.orderChanged = true
}

// lookup finds the slot of an object without allocating its key.
func (ix *Indexer[T]) lookup(m *meta) *slot[T] {
	ix.scratch = appendKey(ix.scratch[:0], m.namespace, m.name)
	s, _ := ix.slots.Load(unsafe.String(unsafe.SliceData(ix.scratch), len(ix.scratch)))
	return s
}

func (ix *Indexer[T]) addBytes(o T, sign int64) {
	if ix.size != nil {
		ix.bytes.Add(sign * int64(ix.size(o)))
	}
}

// advance moves the resourceVersion of a namespace's scope forward, never back.
func (ix *Indexer[T]) advance(namespace string, rv uint64) {
	ix.scopes.advance(namespace, rv)
	ix.rv = ix.scopes.version()
}
