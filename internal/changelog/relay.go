package changelog

import (
	"context"
	"sync"
)

// Relay waits for new batches on behalf of many readers, with one goroutine for
// all of them. The goroutine runs as long as there is a reader. The zero value
// is ready to use.
type Relay[E any] struct {
	mu      sync.Mutex
	readers map[uint64]func()
	lastID  uint64
	stop    context.CancelFunc
	done    chan struct{}
}

// Join calls read once, and again after each append after the position at,
// until leave is called. When leave returns, read is not running and is not
// called again. The reader keeps track of what it has read. read must be quick,
// since other readers wait for it, and must not call Join or leave.
func (r *Relay[E]) Join(at *Position[E], read func()) (leave func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		r.readers, r.stop, r.done = map[uint64]func(){}, cancel, done
		go func() {
			defer close(done)
			r.run(ctx, at)
		}()
	}
	r.lastID++
	id := r.lastID
	r.readers[id] = read
	read() // what was appended before the reader joined
	return func() { r.leave(id) }
}

func (r *Relay[E]) leave(id uint64) {
	r.mu.Lock()
	delete(r.readers, id)
	if len(r.readers) > 0 {
		r.mu.Unlock()
		return
	}
	done := r.done
	r.stop()
	r.stop = nil
	r.mu.Unlock()
	<-done
}

// run follows the log from at until ctx ends.
func (r *Relay[E]) run(ctx context.Context, at *Position[E]) {
	for {
		next, err := at.Wait(ctx)
		if err != nil {
			return
		}
		for ; next != nil; next = at.Next() {
			at = next.End
		}
		if !r.readAll(ctx) {
			return
		}
	}
}

// readAll calls every reader. It returns false if ctx has ended: the readers
// may belong to a later run then.
func (r *Relay[E]) readAll(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return false
	}
	for _, read := range r.readers {
		read()
	}
	return true
}
