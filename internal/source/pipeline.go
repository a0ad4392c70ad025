package source

import "runtime"

// pipeline decodes objects on several CPUs while the next ones are read. It calls each
// in the order of the objects, in the goroutine that adds them.
type pipeline[T any] struct {
	lookup func(raw []byte) (T, bool) // returns objects that need not be decoded; nil for none
	decode func(raw []byte) (T, error)
	each   func(T) error

	filling *chunk[T]
	pending []*chunk[T] // oldest first
	free    []*chunk[T] // chunks to reuse
	width   int
}

// chunk is a number of objects that one goroutine decodes.
type chunk[T any] struct {
	raw   []byte
	items []item[T]
	err   error // of the object after the last of items
	done  chan struct{}
}

// item is a decoded object, or the end of its encoding in the raw bytes of its chunk.
type item[T any] struct {
	object  T
	decoded bool
	end     int
}

// chunkBytes is the size of a chunk: enough for a tenth of a millisecond of decoding.
const chunkBytes = 64 << 10

func newPipeline[T any](lookup func([]byte) (T, bool), decode func([]byte) (T, error), each func(T) error) *pipeline[T] {
	return &pipeline[T]{lookup: lookup, decode: decode, each: each, filling: &chunk[T]{}, width: runtime.GOMAXPROCS(0)}
}

// add adds a copy of the encoding of an object, and delivers objects that are ready.
// An error is that of an earlier object, or of each.
func (p *pipeline[T]) add(raw []byte) error {
	c := p.filling
	if p.lookup != nil {
		if object, ok := p.lookup(raw); ok {
			if len(p.pending) == 0 && len(c.items) == 0 {
				return p.each(object)
			}
			c.items = append(c.items, item[T]{object: object, decoded: true})
			if len(c.items)*itemBytes < chunkBytes {
				return nil
			}
			return p.flush(p.width)
		}
	}
	c.raw = append(c.raw, raw...)
	c.items = append(c.items, item[T]{end: len(c.raw)})
	if len(c.raw) < chunkBytes {
		return nil
	}
	return p.flush(p.width)
}

// itemBytes is the size in a chunk of an object that need not be decoded. It bounds
// chunks of such objects.
const itemBytes = 64

// idle must be called before waiting for input, so that the objects added before do
// not wait for it.
func (p *pipeline[T]) idle() error {
	if err := p.flush(p.width); err != nil {
		return err
	}
	for len(p.pending) > 0 {
		select {
		case <-p.pending[0].done:
			if err := p.take(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// drain delivers all objects that have been added.
func (p *pipeline[T]) drain() error { return p.flush(0) }

// abandon waits for the goroutines, after an error.
func (p *pipeline[T]) abandon() {
	for _, c := range p.pending {
		<-c.done
	}
	p.pending = nil
}

// flush starts to decode the current chunk, and delivers chunks until no more than
// pending are left.
func (p *pipeline[T]) flush(pending int) error {
	if c := p.filling; len(c.items) > 0 {
		c.done = make(chan struct{})
		go func() {
			defer close(c.done)
			c.run(p.decode)
		}()
		p.pending = append(p.pending, c)
		p.filling = nil
	}
	for len(p.pending) > pending {
		if err := p.take(); err != nil {
			return err
		}
	}
	if p.filling == nil {
		p.filling = p.emptyChunk()
	}
	return nil
}

// emptyChunk returns an empty chunk.
func (p *pipeline[T]) emptyChunk() *chunk[T] {
	last := len(p.free) - 1
	if last < 0 {
		return &chunk[T]{}
	}
	c := p.free[last]
	p.free = p.free[:last]
	return c
}

// take waits for the oldest chunk and delivers its objects.
func (p *pipeline[T]) take() error {
	c := p.pending[0]
	<-c.done
	p.pending = p.pending[1:]
	for i := range c.items {
		if err := p.each(c.items[i].object); err != nil {
			return err
		}
	}
	if c.err != nil {
		return c.err
	}
	clear(c.items)
	c.items = c.items[:0]
	if c.raw = c.raw[:0]; cap(c.raw) > maxIdleBuffer {
		c.raw = nil // do not keep the buffer of one big object for the rest of the watch
	}
	p.free = append(p.free, c)
	return nil
}

func (c *chunk[T]) run(decode func([]byte) (T, error)) {
	start := 0
	for i := range c.items {
		it := &c.items[i]
		if it.decoded {
			continue
		}
		object, err := decode(c.raw[start:it.end])
		if err != nil {
			c.err = err
			c.items = c.items[:i]
			return
		}
		it.object, start = object, it.end
	}
}
