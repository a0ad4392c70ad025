package soak

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// truth is etcd's history of the checked resources.
type truth struct {
	mu        sync.Mutex
	histories map[string]*history
	head      uint64 // everything up to this revision is known
	moved     chan struct{}
}

// history is the history of one resource.
type history struct {
	base   map[string]uint64 // the state before the changes, by namespace/name
	baseAt uint64
	folded int // changes merged into base
	log    []change
}

type change struct {
	version uint64
	key     string
	gone    bool
}

// keepChanges is the number of single changes to keep for each resource.
const keepChanges = 400_000

func newTruth(resources ...resource) *truth {
	t := &truth{histories: map[string]*history{}, moved: make(chan struct{})}
	for _, r := range resources {
		t.histories[r.stored] = &history{base: map[string]uint64{}}
	}
	return t
}

// follow watches etcd until ctx ends.
func (t *truth) follow(ctx context.Context, cp *controlplane.Cluster) error {
	return cp.WatchEtcd(ctx,
		func(revision uint64, stored []controlplane.StoredChange) {
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, s := range stored {
				if h, key := t.find(s.Key); h != nil {
					h.base[key] = s.Revision
				}
			}
			for _, h := range t.histories {
				h.baseAt = revision
			}
			t.advance(revision)
		},
		func(changes []controlplane.StoredChange) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			for _, c := range changes {
				if h, key := t.find(c.Key); h != nil {
					h.log = append(h.log, change{c.Revision, key, c.Deleted})
					if len(h.log) > keepChanges {
						h.forget(keepChanges / 2)
					}
				}
			}
			t.advance(changes[len(changes)-1].Revision)
			return true
		})
}

// advance notes how far the truth is known, under the lock.
func (t *truth) advance(revision uint64) {
	t.head = revision
	close(t.moved)
	t.moved = make(chan struct{})
}

// find splits a key of etcd's into the history it belongs to and the name of the
// object.
func (t *truth) find(key string) (*history, string) {
	rest, ok := strings.CutPrefix(key, "/registry/")
	if !ok {
		return nil, ""
	}
	first, rest, _ := strings.Cut(rest, "/")
	if h := t.histories[first]; h != nil {
		return h, rest
	}
	second, rest, _ := strings.Cut(rest, "/")
	return t.histories[first+"/"+second], rest
}

// forget lets go of the first n changes.
func (h *history) forget(n int) {
	for _, c := range h.log[:n] {
		apply(h.base, c)
		h.baseAt = c.version
	}
	h.log = append([]change(nil), h.log[n:]...)
	h.folded += n
}

func apply(state map[string]uint64, c change) {
	if c.gone {
		delete(state, c.key)
	} else {
		state[c.key] = c.version
	}
}

// newest is the revision up to which the truth is known.
func (t *truth) newest() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head
}

// last is the revision of the newest change of a resource that is known.
func (t *truth) last(resource string) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.histories[resource]
	if n := len(h.log); n > 0 {
		return h.log[n-1].version
	}
	return h.baseAt
}

// count is how many objects of a resource there are now, and changes have been.
func (t *truth) count(resource string) (changes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.histories[resource]
	return h.folded + len(h.log)
}

// wait returns when everything up to version is known.
func (t *truth) wait(ctx context.Context, version uint64) error {
	for {
		t.mu.Lock()
		head, moved := t.head, t.moved
		t.mu.Unlock()
		if head >= version {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// cursor is the state of a resource at one version. It moves forward with the requested
// versions, so a comparison costs only the changes since the last one.
type cursor struct {
	truth    *truth
	resource string
	state    map[string]uint64
	at       uint64
	next     int // index of the first change that is not in state, of all changes so far
}

func (t *truth) cursor(resource string) *cursor { return &cursor{truth: t, resource: resource} }

// difference is an object on which a reader and the truth differ.
type difference struct {
	Key    string
	Has    uint64   // the version that the reader has, 0 for none
	Should uint64   // the version in the truth, 0 for none
	Events []change // the last changes of the object in the truth
}

// compare returns the differences between a reader's state and the truth at a version.
// Unless exact, the reader may have later versions of some objects. It returns nil,
// false if the version is too old to be known.
func (c *cursor) compare(has map[string]uint64, version uint64, exact bool) (differences []difference, known bool) {
	c.truth.mu.Lock()
	defer c.truth.mu.Unlock()
	h := c.truth.histories[c.resource]
	if version < h.baseAt {
		return nil, false
	}
	if c.state == nil || version < c.at || c.next < h.folded {
		c.state, c.next = maps.Clone(h.base), h.folded
	}
	log := h.log[c.next-h.folded:]
	for len(log) > 0 && log[0].version <= version {
		apply(c.state, log[0])
		log = log[1:]
		c.next++
	}
	c.at = version
	for key, should := range c.state {
		if is := has[key]; is != should && (exact || !comesTo(log, key, is)) {
			differences = append(differences, difference{key, is, should, h.events(key)})
		}
	}
	for key, is := range has {
		if _, ok := c.state[key]; !ok && (exact || !comesTo(log, key, is)) {
			differences = append(differences, difference{key, is, 0, h.events(key)})
		}
	}
	return differences, true
}

// comesTo reports whether one of the changes gives an object a version, 0 for deleted.
func comesTo(log []change, key string, version uint64) bool {
	for _, c := range log {
		if c.key == key && (c.gone && version == 0 || !c.gone && c.version == version) {
			return true
		}
	}
	return false
}

// events are the last few changes of an object.
func (h *history) events(key string) []change {
	var found []change
	for i := len(h.log) - 1; i >= 0 && len(found) < 6; i-- {
		if h.log[i].key == key {
			found = append([]change{h.log[i]}, found...)
		}
	}
	return found
}
