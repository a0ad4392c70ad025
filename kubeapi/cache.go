package kubeapi

import (
	"container/list"
	"sync"
	"unsafe"

	"github.com/tidings-io/tidings/mirror"
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
	object *mirror.Object
	what   variant
}

// variant says what is encoded and how.
type variant struct {
	frame   byte // the first letter of the event's type, for a frame of a watch
	media   media
	content content
	version string // of meta.k8s.io
	custom  bool   // see kind
}

type entry struct {
	key   key
	bytes []byte
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

// get returns what has been made, or makes it. What it returns is shared.
func (c *cache) get(k key, encode func() ([]byte, error)) ([]byte, error) {
	s := &c.shards[uintptr(unsafe.Pointer(k.object))>>5*0x9E3779B1>>7%uintptr(len(c.shards))]
	s.mu.Lock()
	if e, ok := s.entries[k]; ok {
		s.order.MoveToFront(e)
		found := e.Value.(*entry).bytes
		s.mu.Unlock()
		return found, nil
	}
	s.mu.Unlock()
	made, err := encode()
	if err != nil || int64(len(made)) > s.most/4 {
		return made, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[k]; ok { // somebody was quicker
		return e.Value.(*entry).bytes, nil
	}
	s.entries[k] = s.order.PushFront(&entry{k, made})
	s.size += int64(len(made)) + overhead
	for s.size > s.most {
		last := s.order.Remove(s.order.Back()).(*entry)
		delete(s.entries, last.key)
		s.size -= int64(len(last.bytes)) + overhead
	}
	return made, nil
}
