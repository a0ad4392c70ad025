package fakeapi

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// The methods in this file are for controllers that are simulated in the same
// process. They hand out and take in objects without copying them.

// Change is one entry of a resource's history. Prev is nil for an added object.
// For a deletion, Now is the last state under the deletion's resourceVersion.
// The objects must not be modified.
type Change struct {
	Type      watch.EventType
	Prev, Now Object
}

// Peek is [Cluster.Get] without a copy: the object must not be modified. It
// returns nil if there is none.
func (c *Cluster) Peek(gvr schema.GroupVersionResource, namespace, name string) Object {
	rec, err := c.get(gvr, namespace, name)
	if err != nil {
		return nil
	}
	return rec.obj
}

// PeekAll is [Cluster.List] without copies: the objects must not be modified.
// It also returns the position in the history from which [Cluster.Changes]
// continues. A resource that is not served has no objects.
func (c *Cluster) PeekAll(gvr schema.GroupVersionResource, namespace string) (objs []Object, next uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.resources[gvr]
	if !ok {
		return nil, 0
	}
	items := r.collect(c.rev, selection{namespace: namespace}, "", 0).items
	objs = make([]Object, len(items))
	for i, rec := range items {
		objs[i] = rec.obj
	}
	return objs, r.base + uint64(len(r.log))
}

// Changes returns the history of a resource from the position next on; the
// position after it is next + len(changes). It reports false if the history no
// longer reaches back to next. A resource that is not served has no changes.
func (c *Cluster) Changes(gvr schema.GroupVersionResource, next uint64) (changes []Change, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, served := c.resources[gvr]
	if !served {
		return nil, true
	}
	if next < r.base {
		return nil, false
	}
	for _, ch := range r.log[next-r.base:] {
		out := Change{Type: ch.kind, Now: ch.now.obj}
		if ch.prev != nil {
			out.Prev = ch.prev.obj
		}
		changes = append(changes, out)
	}
	return changes, true
}

// Advanced returns a channel that the next write to any resource closes.
func (c *Cluster) Advanced() <-chan struct{} { return c.advanced.Next() }

// Insert is [Cluster.Create] without copies: the cluster takes over obj, which
// must be in the form of [Cluster.Get].
func (c *Cluster) Insert(gvr schema.GroupVersionResource, obj Object) error {
	r, ok := c.lookup(gvr)
	if !ok {
		return errNoResource(gvr)
	}
	_, err := c.insert(r, obj)
	return err
}

// Modify replaces an object by the result of change, in one step. change runs
// under the cluster's lock. It must not modify the object it gets, nor use the
// cluster; it may return the same object for no change. The cluster takes over
// any other object it returns.
func (c *Cluster) Modify(gvr schema.GroupVersionResource, namespace, name string, change func(Object) (Object, error)) error {
	r, ok := c.lookup(gvr)
	if !ok {
		return errNoResource(gvr)
	}
	_, err := c.modify(r, namespace, name, change)
	return err
}

// DeleteGracefully deletes an object as a DELETE request at the time now does:
// it takes finalizers and [Options.GracefulPods] into account.
func (c *Cluster) DeleteGracefully(gvr schema.GroupVersionResource, namespace, name string, now time.Time) error {
	r, ok := c.lookup(gvr)
	if !ok {
		return errNoResource(gvr)
	}
	_, _, err := c.remove(r, namespace, name, &metav1.DeleteOptions{}, now)
	return err
}
