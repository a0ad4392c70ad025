package kubeapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// stream sends the frames of one watch. What comes within a moment goes out
// together; a watch on which nothing happens costs no goroutine and no timer.
type stream struct {
	write  func([]byte) error // of whole frames
	flush  func() error
	each   bool // frames are written one by one, as messages
	cancel context.CancelFunc
	open   *atomic.Int64 // streams there are

	mu      sync.Mutex
	pending *[]byte // nil: nothing waits
	flushed time.Time
	armed   bool // a flush is about to come
	timer   *time.Timer
	err     error
}

const (
	// moment is how long frames wait for others, if one has just been sent, and
	// momentOfEach what every open watch adds to that: the time it takes to write to
	// it, by and large. So where a change goes out to a thousand watches, the writing
	// does not take all there is of the processor, and they are not told later than
	// if it did.
	moment       = time.Millisecond
	momentOfEach = 40 * time.Microsecond
	mostMoment   = 50 * time.Millisecond
	// sendAt is how much waits at most.
	sendAt = 32 << 10
)

// waiting are buffers for frames that wait: a silent stream has none.
var waiting = sync.Pool{New: func() any { return new([]byte) }}

// stream begins the answer to a watch. end sends what is left; nothing may be sent
// after that.
func (c *call) stream(cancel context.CancelFunc) (out *stream, end func(), err error) {
	mediaType := c.form.mediaType
	if c.form.media != asJSON {
		mediaType += ";stream=watch"
	}
	s := &stream{cancel: cancel, open: &c.streams}
	if isWebSocket(c.r) {
		return c.webSocket(s, mediaType)
	}
	control := http.NewResponseController(c.w)
	c.w.Header().Set("Content-Type", mediaType)
	c.w.WriteHeader(http.StatusOK)
	if err := control.Flush(); err != nil {
		cancel() // the client is gone
	}
	s.write = func(b []byte) error { _, err := c.w.Write(b); return err }
	s.flush = control.Flush
	return s, s.end, nil
}

// alive says that the client is there, as far as is known.
func (s *stream) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil
}

// send adds a frame.
func (s *stream) send(frame []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(frame)
}

// add is send under the lock.
func (s *stream) add(frame []byte) {
	if s.err != nil {
		return
	}
	if s.each {
		s.note(s.write(frame))
		return
	}
	wait := min(moment+time.Duration(s.open.Load())*momentOfEach, mostMoment) - time.Since(s.flushed)
	if s.pending == nil && wait <= 0 {
		s.note(s.write(frame))
		s.out()
		return
	}
	if s.pending == nil {
		s.pending = waiting.Get().(*[]byte)
	}
	*s.pending = append(*s.pending, frame...)
	if len(*s.pending) >= sendAt {
		s.push()
	}
	switch {
	case s.armed:
	case wait <= 0:
		s.push()
		s.out()
	case s.timer == nil:
		s.armed, s.timer = true, time.AfterFunc(wait, s.late)
	default:
		s.armed = true
		s.timer.Reset(wait)
	}
}

// late sends what has waited for a moment.
func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed = false
		s.push()
		s.out()
	}
}

// push writes what is pending. s.mu is held.
func (s *stream) push() {
	if s.pending == nil {
		return
	}
	if s.err == nil {
		s.note(s.write(*s.pending))
	}
	if *s.pending = (*s.pending)[:0]; cap(*s.pending) <= 2*sendAt {
		waiting.Put(s.pending)
	}
	s.pending = nil
}

// out sends what has been written on its way. s.mu is held.
func (s *stream) out() {
	if s.err == nil {
		s.note(s.flush())
		s.flushed = time.Now()
	}
}

// note keeps an error and has the watch end.
func (s *stream) note(err error) {
	if err != nil && s.err == nil {
		s.err = err
		s.cancel()
	}
}

// stop sends what there is; nothing comes after it.
func (s *stream) stop() { s.end() }

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed = false
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.err == nil {
		if !s.each {
			s.push()
			s.out()
		}
		s.err = http.ErrHandlerTimeout
	}
}
