package kubeapi

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// stream sends the frames of one watch. It sends frames that come within a short time
// together. An idle watch has no goroutine and no timer.
type stream struct {
	write  func([]byte) error // writes whole frames
	flush  func() error
	each   bool // each frame is written by itself, as a message
	cancel context.CancelFunc
	open   *atomic.Int64 // number of open streams

	mu      sync.Mutex
	pending *[]byte // nil: none
	flushed time.Time
	armed   bool // the timer will flush
	timer   *time.Timer
	err     error
}

const (
	// flushDelay is how long a frame waits for others after a flush. Every open watch
	// adds delayPerWatch, about the time of one write: when a change goes to a
	// thousand watches, their writes do not use all of the CPU, and the change arrives
	// no later than if they did.
	flushDelay    = time.Millisecond
	delayPerWatch = 40 * time.Microsecond
	maxDelay      = 50 * time.Millisecond
	// sendAt is the maximum size of pending frames.
	sendAt = 32 << 10
)

// pendingBuffers are buffers for pending frames. An idle stream has none.
var pendingBuffers = sync.Pool{New: func() any { return new([]byte) }}

// stream begins the answer to a watch. end sends the pending frames. Nothing may be sent
// after it.
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

// alive reports whether no write has failed and the stream has not ended.
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

// add is send for callers that hold s.mu.
func (s *stream) add(frame []byte) {
	if s.err != nil {
		return
	}
	if s.each {
		s.note(s.write(frame))
		return
	}
	wait := min(flushDelay+time.Duration(s.open.Load())*delayPerWatch, maxDelay) - time.Since(s.flushed)
	if s.pending == nil && wait <= 0 {
		s.note(s.write(frame))
		s.out()
		return
	}
	if s.pending == nil {
		s.pending = pendingBuffers.Get().(*[]byte)
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

// late sends pending frames when the timer fires.
func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed = false
		s.push()
		s.out()
	}
}

// push writes the pending frames. The caller holds s.mu.
func (s *stream) push() {
	if s.pending == nil {
		return
	}
	if s.err == nil {
		s.note(s.write(*s.pending))
	}
	if *s.pending = (*s.pending)[:0]; cap(*s.pending) <= 2*sendAt {
		pendingBuffers.Put(s.pending)
	}
	s.pending = nil
}

// out flushes what has been written. The caller holds s.mu.
func (s *stream) out() {
	if s.err == nil {
		s.note(s.flush())
		s.flushed = time.Now()
	}
}

// note records an error and ends the watch.
func (s *stream) note(err error) {
	if err != nil && s.err == nil {
		s.err = err
		s.cancel()
	}
}

// end sends the pending frames. Frames sent after it are dropped.
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
