package source

import "runtime"

// pipeline decodes objects on several processors while the next ones are read,
// and hands them on in the order in which they came, in the goroutine that adds
// them.
type pipeline[T any] struct {
	held   func(raw []byte) (T, bool) // objects that need not be decoded; nil for none
	decode func(raw []byte) (T, error)
	each   func(T) error

	filling *chunk[T]
	pending []*chunk[T] // oldest first
	spare   []*chunk[T] // have been handed on: their memory serves again
	width   int
}

// chunk is some objects that are decoded by one goroutine.
type chunk[T any] struct {
	raw   []byte
	items []item[T]
	err   error // of the object after the last
	done  chan struct{}
}

// item is an object, or where its encoding ends in the raw bytes of its chunk.
type item[T any] struct {
	object T
	held   bool
	end    int
}

// chunkBytes is worth the handing over: a tenth of a millisecond of decoding or so.
const chunkBytes = 64 << 10

func newPipeline[T any](held func([]byte) (T, bool), decode func([]byte) (T, error), each func(T) error) *pipeline[T] {
	return &pipeline[T]{held: held, decode: decode, each: each, filling: &chunk[T]{}, width: runtime.GOMAXPROCS(0)}
}

// add takes in the encoding of an object, which it copies, and hands on objects
// that are ready. An error is that of an earlier object, or of each.
func (p *pipeline[T]) add(raw []byte) error {
	c := p.filling
	if p.held != nil {
		if object, ok := p.held(raw); ok {
			if len(p.pending) == 0 && len(c.items) == 0 {
				return p.each(object)
			}
			c.items = append(c.items, item[T]{object: object, held: true})
			if len(c.items)*itemBytes < chunkBytes {
				return nil
			}
			return p.submit(p.width)
		}
	}
	c.raw = append(c.raw, raw...)
	c.items = append(c.items, item[T]{end: len(c.raw)})
	if len(c.raw) < chunkBytes {
		return nil
	}
	return p.submit(p.width)
}

// itemBytes is what an object that is held counts for in a chunk, which is not to
// wait for ever for one that is not.
const itemBytes = 64

// idle is called when nothing more is at hand to be read: what has been added
// is not to wait for it.
func (p *pipeline[T]) idle() error {
	if err := p.submit(p.width); err != nil {
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

// drain hands on everything that has been added.
func (p *pipeline[T]) drain() error { return p.submit(0) }

// abandon waits for the goroutines after an error.
func (p *pipeline[T]) abandon() {
	for _, c := range p.pending {
		<-c.done
	}
	p.pending = nil
}

// submit has what is there decoded, and hands on until no more than some chunks
// are pending.
func (p *pipeline[T]) submit(pending int) error {
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
		p.filling = p.another()
	}
	return nil
}

// another returns an empty chunk.
func (p *pipeline[T]) another() *chunk[T] {
	last := len(p.spare) - 1
	if last < 0 {
		return &chunk[T]{}
	}
	c := p.spare[last]
	p.spare = p.spare[:last]
	return c
}

// take hands on the oldest chunk, waiting for it if need be.
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
	if c.raw = c.raw[:0]; cap(c.raw) > roomy {
		c.raw = nil // one big object must not cost as much for as long as a watch lasts
	}
	p.spare = append(p.spare, c)
	return nil
}

func (c *chunk[T]) run(decode func([]byte) (T, error)) {
	start := 0
	for i := range c.items {
		it := &c.items[i]
		if it.held {
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
