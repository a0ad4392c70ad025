package kubeapi

import (
	"container/list"
	"sync"
	"unsafe"

	printing "github.com/tidings-io/tidings/kubeapi/table"
	"github.com/tidings-io/tidings/read"
)

// cache keeps encodings of object versions, so that what many ask for is made
// once. What was not used for the longest time gives way.
type cache struct{ shards [16]shard }

type shard struct {
	mu      sync.Mutex
	most    int64
	size    int64
	entries map[key]*list.Element
	order   list.List // of *entry, the one used last in front
}

// key names an encoding of one version of an object: by the very object, which
// never changes.
type key struct {
	object *read.Object
	what   variant
}

// variant says what is encoded and how.
type variant struct {
	frame   byte // the first letter of the event's type, for a frame of a watch
	media   media
	content content
	version string            // of meta.k8s.io
	custom  bool              // see kind
	printer *printing.Printer // of a row of a Table
}

type entry struct {
	key  key
	made any // bytes, or a row of a Table
	size int64
}

// overhead is what an entry takes beside its bytes, by and large.
const overhead = 200

func newCache(most int64) *cache {
	c := &cache{}
	for i := range c.shards {
		c.shards[i].most = most / int64(len(c.shards))
		c.shards[i].entries = map[key]*list.Element{}
	}
	return c
}

// get returns the encoding that has been made, or makes it. What it returns is
// shared.
func (c *cache) get(k key, encode func() ([]byte, error)) ([]byte, error) {
	made, err := c.keep(k, func() (any, int, error) {
		b, err := encode()
		return b, len(b), err
	})
	b, _ := made.([]byte)
	return b, err
}

// keep returns what has been made, or makes it, and learns how many bytes it
// takes.
func (c *cache) keep(k key, make func() (any, int, error)) (any, error) {
	s := &c.shards[uintptr(unsafe.Pointer(k.object))>>5*0x9E3779B1>>7%uintptr(len(c.shards))]
	s.mu.Lock()
	if e, ok := s.entries[k]; ok {
		s.order.MoveToFront(e)
		found := e.Value.(*entry).made
		s.mu.Unlock()
		return found, nil
	}
	s.mu.Unlock()
	made, size, err := make()
	if err != nil || int64(size) > s.most/4 {
		return made, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[k]; ok { // somebody was quicker
		return e.Value.(*entry).made, nil
	}
	s.entries[k] = s.order.PushFront(&entry{k, made, int64(size) + overhead})
	s.size += int64(size) + overhead
	for s.size > s.most {
		last := s.order.Remove(s.order.Back()).(*entry)
		delete(s.entries, last.key)
		s.size -= last.size
	}
	return made, nil
}
