package clientgo

import (
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/share"
)

// queueStore is the cache.ReflectorStore that a reflector of this package
// writes to. It turns each call into a delta and pushes it onto the engine's
// delta queue. It transforms each object once, before anything else can see it
// (client-go's the_real_fifo.go). Deltas of a watch are collected until flush.
type queueStore struct {
	queue          *delta.Queue[item]
	transform      cache.TransformFunc // nil for none
	shared         *share.Table        // nil if equal parts are not shared
	pending        []delta.Delta[item] // deltas of a watch, not flushed yet
	waitUntilSpace func()              // blocks while the queue is full; nil if it is unbounded
}

var (
	_ cache.ReflectorStore         = &queueStore{}
	_ cache.ReflectorBookmarkStore = &queueStore{}
)

// newItem transforms obj and makes an item of it.
func (in *queueStore) newItem(obj any) (item, error) {
	made, err := newInformerItem(obj)
	if err == nil && in.transform != nil {
		if obj, err = in.transform(obj); err != nil {
			return item{}, err
		}
		made, err = newInformerItem(obj)
	}
	if err == nil {
		shareParts(in.shared, obj)
	}
	return made, err
}

func (in *queueStore) push(t delta.Type, obj any) error {
	made, err := in.newItem(obj)
	if err == nil {
		in.pending = append(in.pending, delta.Delta[item]{Type: t, Object: made})
	}
	return err
}

// flush pushes the collected deltas onto the queue.
func (in *queueStore) flush() {
	in.waitForSpace()
	in.queue.Push(in.pending...)
	clear(in.pending)
	in.pending = in.pending[:0]
}

func (in *queueStore) waitForSpace() {
	if in.waitUntilSpace != nil {
		in.waitUntilSpace()
	}
}

func (in *queueStore) Add(obj any) error    { return in.push(delta.Added, obj) }
func (in *queueStore) Update(obj any) error { return in.push(delta.Updated, obj) }
func (in *queueStore) Delete(obj any) error { return in.push(delta.Deleted, obj) }

// Replace queues a complete list. If an object cannot be transformed or has no
// key, it returns the error and changes nothing.
func (in *queueStore) Replace(objects []any, version string) error {
	items := make([]item, len(objects))
	for i, obj := range objects {
		made, err := in.newItem(obj)
		if err != nil {
			return err
		}
		items[i] = made
	}
	in.replace(items, version)
	return nil
}

func (in *queueStore) replace(items []item, version string) {
	in.flush()
	in.queue.Push(delta.Delta[item]{Type: delta.Replaced, List: &delta.List[item]{Items: items, ResourceVersion: version}})
}

func (in *queueStore) Resync() error {
	in.waitForSpace()
	in.queue.Push(delta.Delta[item]{Type: delta.Sync})
	return nil
}

func (in *queueStore) Bookmark(version string) error {
	in.pending = append(in.pending, delta.Delta[item]{Type: delta.Bookmark, List: &delta.List[item]{ResourceVersion: version}})
	return nil
}
