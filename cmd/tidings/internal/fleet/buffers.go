package fleet

import "sync"

// buffers are for compressing and expanding messages. There are many feeds, and each has a message now
// and then: a buffer of its own would be cold memory each time.
var buffers bufferPool

type bufferPool struct{ pool sync.Pool }

// get returns a buffer, the content of which means nothing.
func (p *bufferPool) get() *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return b
	}
	return new([]byte)
}

// put takes a buffer back, which may be nil. A large one is left to the garbage collector.
func (p *bufferPool) put(b *[]byte) {
	if b != nil && cap(*b) <= batchBytes {
		p.pool.Put(b)
	}
}
