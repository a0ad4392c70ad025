package clientgo

import (
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/share"
)

// inlet is where a reflector puts what it learns: the engine's queue, as the
// store that client-go's rules speak of. Objects are transformed on the way in,
// each once, before anybody else can see them (client-go's the_real_fifo.go).
// What a watch brings waits until the watch has no more at the moment.
type inlet struct {
	queue     *delta.Queue[item]
	transform cache.TransformFunc // nil: none
	shared    *share.Table        // nil: every object by itself
	pending   []delta.Delta[item] // of a watch, to be flushed
	room      func()              // waits until the queue may grow; nil: it always may
}

var (
	_ cache.ReflectorStore         = &inlet{}
	_ cache.ReflectorBookmarkStore = &inlet{}
)

// make transforms an object and names it.
func (in *inlet) make(obj any) (item, error) {
	made, err := informed(obj)
	if err == nil && in.transform != nil {
		if obj, err = in.transform(obj); err != nil {
			return item{}, err
		}
		made, err = informed(obj)
	}
	if err == nil {
		shareParts(in.shared, obj)
	}
	return made, err
}

func (in *inlet) push(t delta.Type, obj any) error {
	made, err := in.make(obj)
	if err == nil {
		in.pending = append(in.pending, delta.Delta[item]{Type: t, Object: made})
	}
	return err
}

// flush hands on what a watch has brought.
func (in *inlet) flush() {
	in.waitForRoom()
	in.queue.Push(in.pending...)
	clear(in.pending)
	in.pending = in.pending[:0]
}

func (in *inlet) waitForRoom() {
	if in.room != nil {
		in.room()
	}
}

func (in *inlet) Add(obj any) error    { return in.push(delta.Added, obj) }
func (in *inlet) Update(obj any) error { return in.push(delta.Updated, obj) }
func (in *inlet) Delete(obj any) error { return in.push(delta.Deleted, obj) }

// Replace fails, and changes nothing, if one of the objects cannot be
// transformed or named.
func (in *inlet) Replace(objects []any, version string) error {
	items := make([]item, len(objects))
	for i, obj := range objects {
		made, err := in.make(obj)
		if err != nil {
			return err
		}
		items[i] = made
	}
	in.replace(items, version)
	return nil
}

func (in *inlet) replace(items []item, version string) {
	in.flush()
	in.queue.Push(delta.Delta[item]{Type: delta.Replaced, List: &delta.List[item]{Items: items, ResourceVersion: version}})
}

func (in *inlet) Resync() error {
	in.waitForRoom()
	in.queue.Push(delta.Delta[item]{Type: delta.Sync})
	return nil
}

func (in *inlet) Bookmark(version string) error {
	in.pending = append(in.pending, delta.Delta[item]{Type: delta.Bookmark, List: &delta.List[item]{ResourceVersion: version}})
	return nil
}
