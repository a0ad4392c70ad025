package kubeapi

import (
	"sync"
	"unsafe"

	printing "github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// encodingCache keeps encodings of object versions, so that each is made once for all
// requests. It evicts the least recently used ones: the watches of a resource encode a
// change at about the same time.
type encodingCache struct{ shards [16]shard }

type shard struct {
	mu      sync.Mutex
	entries sizedLRU[encodingKey, any] // bytes, or rows of Tables
}

// encodingKey identifies an encoding of one version of an object. Objects are never
// modified, so the pointer identifies the version.
type encodingKey struct {
	object  *read.Object
	variant variant
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

// overhead is the approximate size of an entry without its bytes.
const overhead = 200

func newEncodingCache(max int64) *encodingCache {
	c := &encodingCache{}
	for i := range c.shards {
		c.shards[i].entries = newSizedLRU[encodingKey, any](max / int64(len(c.shards)))
	}
	return c
}

// bytes returns an encoding, and makes it if necessary. It is shared and must not be
// modified.
func (c *encodingCache) bytes(k encodingKey, encode func() ([]byte, error)) ([]byte, error) {
	made, err := c.get(k, func() (any, int, error) {
		b, err := encode()
		return b, len(b), err
	})
	b, _ := made.([]byte)
	return b, err
}

// get returns an encoding, and makes it if necessary. make returns its size in bytes too.
func (c *encodingCache) get(k encodingKey, make func() (any, int, error)) (any, error) {
	s := &c.shards[uintptr(unsafe.Pointer(k.object))>>5*0x9E3779B1>>7%uintptr(len(c.shards))]
	s.mu.Lock()
	found, ok := s.entries.get(k)
	s.mu.Unlock()
	if ok {
		return found, nil
	}
	made, size, err := make()
	if err != nil || int64(size) > s.entries.max/4 {
		return made, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.entries.get(k); ok { // another call was quicker
		return found, nil
	}
	s.entries.add(k, made, int64(size)+overhead)
	return made, nil
}
