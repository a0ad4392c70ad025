package fakeapi

import (
	"context"
	"sort"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// Object is a Kubernetes object: a typed one, or an *unstructured.Unstructured.
type Object interface {
	metav1.Object
	runtime.Object
}

// record is one version of an object. A record in the store and its object are
// immutable, so readers need no lock for them.
type record struct {
	key string
	rev uint64
	obj Object
}

// change is one entry of a resource's history. For a deletion, now is the last
// state with the deletion's revision, as in a watch of etcd.
type change struct {
	kind      watch.EventType
	prev, now *record
}

// commit stores obj as the successor of prev with a new revision. It takes
// ownership of obj. The caller holds c.mu.
func (c *Cluster) commit(r *resource, kind watch.EventType, prev *record, obj Object) *record {
	c.rev++
	obj.SetResourceVersion(strconv.FormatUint(c.rev, 10))
	rec := &record{key: r.key(obj.GetNamespace(), obj.GetName()), rev: c.rev, obj: obj}
	if kind == watch.Deleted {
		r.objects.Delete(rec.key)
	} else {
		r.objects.Set(rec.key, rec)
	}
	r.log = append(r.log, change{kind: kind, prev: prev, now: rec})
	// Trimming at twice the size costs one copy in History writes. The copy
	// releases the dropped versions.
	if keep := c.opts.History; len(r.log) >= 2*keep {
		r.forget(len(r.log) - keep)
	}
	r.changed.Notify()
	c.advanced.Notify()
	return rec
}

// forget drops the oldest n changes.
func (r *resource) forget(n int) {
	if n == 0 {
		return
	}
	r.floor = r.log[n-1].now.rev
	r.base += uint64(n)
	r.log = append([]change(nil), r.log[n:]...)
}

// since returns the index in the log of the first change after rev. The caller
// holds c.mu.
func (r *resource) since(rev uint64) int {
	return sort.Search(len(r.log), func(i int) bool { return r.log[i].now.rev > rev })
}

// selection selects objects of a resource.
type selection struct {
	namespace string            // empty is all
	match     func(Object) bool // nil is all
}

func (s selection) prefix() string {
	if s.namespace == "" {
		return ""
	}
	return s.namespace + "/"
}

func (s selection) matches(rec *record) bool {
	return rec != nil && strings.HasPrefix(rec.key, s.prefix()) && (s.match == nil || s.match(rec.obj))
}

// page is a page of a list.
type page struct {
	items     []*record
	more      bool
	remaining int64 // number of objects that follow; only counted without a match function
}

// collect returns up to limit (0 is all) objects as of revision at, from the key
// start on, in order. The history must reach back to at. The caller holds c.mu.
func (r *resource) collect(at uint64, sel selection, start string, limit int64) page {
	// Undo later changes: the first change of an object after the revision has
	// its state at the revision.
	was := map[string]*record{}
	for _, ch := range r.log[r.since(at):] {
		if _, ok := was[ch.now.key]; !ok {
			was[ch.now.key] = ch.prev
		}
	}
	var back []*record
	for key, rec := range was {
		if rec != nil && key >= start && strings.HasPrefix(key, sel.prefix()) {
			back = append(back, rec)
		}
	}
	sort.Slice(back, func(i, j int) bool { return back[i].key < back[j].key })

	var p page
	take := func(rec *record) bool {
		if limit > 0 && int64(len(p.items)) == limit {
			if sel.match != nil {
				// Like a real server, do not check whether any of the rest
				// match.
				p.more = true
				return false
			}
			p.more = true
			p.remaining++
			return true
		}
		if sel.matches(rec) {
			p.items = append(p.items, rec)
		}
		return true
	}
	full := false
	r.objects.Ascend(max(start, sel.prefix()), func(key string, rec *record) bool {
		if !strings.HasPrefix(key, sel.prefix()) {
			return false
		}
		for len(back) > 0 && back[0].key < key {
			full = full || !take(back[0])
			back = back[1:]
		}
		if _, changed := was[key]; !changed {
			full = full || !take(rec)
		}
		return !full
	})
	for _, rec := range back {
		full = full || !take(rec)
	}
	return p
}

// waitTimeout limits how long a request waits for a future revision, as in a
// kube-apiserver.
const waitTimeout = 3 * time.Second

// waitFor waits until the store has reached rev. After waitTimeout it returns the
// 504 of a real server.
func (c *Cluster) waitFor(ctx context.Context, rev uint64) error {
	var timeout <-chan time.Time
	for {
		advanced := c.advanced.Next()
		c.mu.RLock()
		now := c.rev
		c.mu.RUnlock()
		if now >= rev {
			return nil
		}
		if timeout == nil {
			timer := time.NewTimer(waitTimeout)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-advanced:
		case <-timeout:
			return errTooLarge(rev, now)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ResourceVersion returns the revision of the newest write.
func (c *Cluster) ResourceVersion() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return strconv.FormatUint(c.rev, 10)
}

// Compact drops all history, like a compaction of etcd and a restart of the API
// server: watches, exact lists and continue tokens of an older resourceVersion get
// 410 Expired from then on. Open watches that are up to date continue.
func (c *Cluster) Compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.resources {
		r.forget(len(r.log))
		r.floor = c.rev
	}
}

// Get returns a copy of an object, or a NotFound error. Objects of built-in kinds
// have their Go types, without kind and apiVersion; others are
// *unstructured.Unstructured.
func (c *Cluster) Get(gvr schema.GroupVersionResource, namespace, name string) (Object, error) {
	rec, err := c.get(gvr, namespace, name)
	if err != nil {
		return nil, err
	}
	return rec.obj.DeepCopyObject().(Object), nil
}

func (c *Cluster) get(gvr schema.GroupVersionResource, namespace, name string) (*record, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.resources[gvr]
	if !ok {
		return nil, errNoResource(gvr)
	}
	rec, ok := r.objects.Get(r.key(namespace, name))
	if !ok {
		return nil, errNotFound(r, name)
	}
	return rec, nil
}

// List returns copies of the objects of a resource in a namespace, or in all with
// "", ordered by namespace and name, and the resourceVersion of this state. The
// objects are in the form of [Cluster.Get].
func (c *Cluster) List(gvr schema.GroupVersionResource, namespace string) ([]Object, string, error) {
	c.mu.RLock()
	r, ok := c.resources[gvr]
	if !ok {
		c.mu.RUnlock()
		return nil, "", errNoResource(gvr)
	}
	rev := c.rev
	items := r.collect(rev, selection{namespace: namespace}, "", 0).items
	c.mu.RUnlock()
	objs := make([]Object, len(items))
	for i, rec := range items {
		objs[i] = rec.obj.DeepCopyObject().(Object)
	}
	return objs, strconv.FormatUint(rev, 10), nil
}
