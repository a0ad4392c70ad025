package kubeapi

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// stream sends the frames of one watch. What comes within a moment goes out
// together; a watch on which nothing happens costs no goroutine and no timer.
type stream struct {
	write  func([]byte) error // of whole frames
	flush  func() error
	each   bool // frames are written one by one, as messages
	cancel context.CancelFunc

	mu      sync.Mutex
	pending []byte
	flushed time.Time
	armed   bool // a flush is about to come
	timer   *time.Timer
	err     error
}

const (
	// moment is how long frames wait for others, if one has just been sent.
	moment = time.Millisecond
	// sendAt is how much waits at most.
	sendAt = 32 << 10
	// keepBuffer is how much memory a silent stream may hold.
	keepBuffer = 2 << 10
)

// stream begins the answer to a watch. end sends what is left; nothing may be sent
// after that.
func (c *call) stream(cancel context.CancelFunc) (out *stream, end func(), err error) {
	mediaType := c.form.mediaType
	if c.form.media != asJSON {
		mediaType += ";stream=watch"
	}
	s := &stream{cancel: cancel}
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
	s.pending = append(s.pending, frame...)
	switch {
	case len(s.pending) >= sendAt:
		s.push(false)
	case s.armed:
	case time.Since(s.flushed) >= moment:
		s.push(true)
	default:
		s.armed = true
		if s.timer == nil {
			s.timer = time.AfterFunc(moment, s.late)
		} else {
			s.timer.Reset(moment)
		}
	}
}

// late sends what has waited for a moment.
func (s *stream) late() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed = false
		s.push(true)
	}
}

// push writes what is pending. s.mu is held.
func (s *stream) push(flush bool) {
	if len(s.pending) > 0 && s.err == nil {
		s.note(s.write(s.pending))
	}
	if flush && s.err == nil {
		s.note(s.flush())
		s.flushed = time.Now()
	}
	if s.pending = s.pending[:0]; cap(s.pending) > keepBuffer {
		s.pending = nil
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
			s.push(true)
		}
		s.err = http.ErrHandlerTimeout
	}
}
