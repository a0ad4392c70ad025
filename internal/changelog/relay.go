package changelog

import (
	"context"
	"sync"
)

// Relay waits for news of a log on behalf of many readers, with one goroutine for
// all of them, which is there as long as any reader is.
type Relay[E any] struct {
	mu      sync.Mutex
	readers map[uint64]func()
	joined  uint64
	stop    context.CancelFunc
	done    chan struct{}
}

// Join has read called, now and after whatever is appended behind at, until leave
// is called; read does not run any more when leave returns. It is for the reader to
// know what it has read. Read must be quick, since others wait for it, and must not
// call Join or leave.
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
	r.joined++
	id := r.joined
	r.readers[id] = read
	read() // what was appended before it was among the readers
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
		if !r.tell(ctx) {
			return
		}
	}
}

// tell has every reader read, unless they are others' by now.
func (r *Relay[E]) tell(ctx context.Context) bool {
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
