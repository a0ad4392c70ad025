package source

import "runtime"

// pipeline decodes objects on several processors while the next ones are read,
// and hands them on in the order in which they came, in the goroutine that adds
// them.
type pipeline[T any] struct {
	decode func(raw []byte) (T, error)
	each   func(T) error

	filling *chunk[T]
	pending []*chunk[T] // oldest first
	width   int
}

// chunk is some objects that are decoded by one goroutine.
type chunk[T any] struct {
	raw     []byte
	ends    []int // of the objects in raw
	objects []T
	err     error // of the object after the last
	done    chan struct{}
}

// chunkBytes is worth the handing over: half a millisecond of decoding or so.
const chunkBytes = 64 << 10

func newPipeline[T any](decode func([]byte) (T, error), each func(T) error) *pipeline[T] {
	return &pipeline[T]{decode: decode, each: each, filling: &chunk[T]{}, width: runtime.GOMAXPROCS(0)}
}

// add takes in the encoding of an object, which it copies, and hands on objects
// that are ready. An error is that of an earlier object, or of each.
func (p *pipeline[T]) add(raw []byte) error {
	c := p.filling
	c.raw = append(c.raw, raw...)
	c.ends = append(c.ends, len(c.raw))
	if len(c.raw) < chunkBytes {
		return nil
	}
	return p.submit(p.width)
}

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
	if c := p.filling; len(c.ends) > 0 {
		c.done = make(chan struct{})
		go func() {
			defer close(c.done)
			c.run(p.decode)
		}()
		p.pending = append(p.pending, c)
		p.filling = &chunk[T]{}
	}
	for len(p.pending) > pending {
		if err := p.take(); err != nil {
			return err
		}
	}
	return nil
}

// take hands on the oldest chunk, waiting for it if need be.
func (p *pipeline[T]) take() error {
	c := p.pending[0]
	<-c.done
	p.pending = p.pending[1:]
	for _, o := range c.objects {
		if err := p.each(o); err != nil {
			return err
		}
	}
	if c.err == nil && len(p.filling.raw) == 0 { // its memory serves again
		clear(c.objects)
		p.filling.raw, p.filling.ends, p.filling.objects = c.raw[:0], c.ends[:0], c.objects[:0]
	}
	return c.err
}

func (c *chunk[T]) run(decode func([]byte) (T, error)) {
	start := 0
	for _, end := range c.ends {
		o, err := decode(c.raw[start:end])
		if err != nil {
			c.err = err
			return
		}
		c.objects = append(c.objects, o)
		start = end
	}
}
