package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// serveWatch answers with server-sent events. It returns an error only before anything
// was sent.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, q *read.Query, since string) error {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(errShutdown) })()
	var events read.Events
	var err error
	if g := grantOf(r); g.params.visible {
		events, err = s.watchVisible(ctx, g, q, since)
	} else {
		events, err = s.reader.Watch(ctx, q, since)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	st := &stream{w: w, control: http.NewResponseController(w), signal: make(chan struct{}, 1), cancel: cancel}
	st.add(fmt.Appendf(nil, "retry: %d\n\n", reconnectDelay.Milliseconds()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.run(ctx, s.opts.KeepAlive)
	}()
	for e, err := range events {
		if err != nil {
			st.end(err)
			break
		}
		if !st.event(e) {
			break
		}
	}
	switch {
	case access.IsLost(r.Context()):
		st.end(context.Cause(r.Context()))
	case s.draining.Err() != nil:
		st.end(&mirror.Error{Reason: mirror.Ended, Message: errShutdown.Error()})
	}
	cancel(nil)
	<-done
	st.flush()
	return nil
}

// stream writes events to one client. One goroutine adds messages and another sends
// them. Messages that are added during a send go out together with the next one.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	signal  chan struct{} // something is pending
	cancel  context.CancelCauseFunc

	mu          sync.Mutex
	pending     []byte
	resumePoint string // after the last event, sent or not
	sentID      string // the last id sent
	active      bool   // something was sent since the last tick
	err         error
}

const (
	// flushSize is how many bytes are collected at most before they are sent.
	flushSize = 32 << 10
	// maxIdleBuffer is the largest buffer that an idle stream keeps.
	maxIdleBuffer = 4 << 10
)

// event adds the message of an event, if it has one. It returns false when the client
// is gone.
func (s *stream) event(e read.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.ResumePoint != "" {
		s.resumePoint = e.ResumePoint
	}
	if e.Type == read.Bookmark {
		// The resume point goes out with the next event or as a keep-alive. Resume point 0
		// goes out now: what follows is not complete yet.
		if e.ResumePoint == "0" {
			s.addResumePoint()
		}
		return s.err == nil
	}
	if s.resumePoint != s.sentID {
		s.sentID = s.resumePoint
		s.pending = fmt.Appendf(s.pending, "id: %s\n", s.resumePoint)
	}
	s.pending = append(s.pending, `data: {"type":"`...)
	s.pending = append(s.pending, e.Type...)
	s.pending = append(s.pending, '"')
	if e.Object != nil {
		s.pending = append(s.pending, `,"object":`...)
		s.pending = append(s.pending, oneLine(e.Object.JSON())...)
	}
	if e.ResourceVersion != "" {
		s.pending = append(s.pending, `,"resourceVersion":`...)
		s.pending = append(s.pending, quoted(e.ResourceVersion)...)
	}
	s.pending = append(s.pending, "}\n\n"...)
	s.signalSend()
	return s.err == nil
}

// addResumePoint adds a message without data: it changes the client's last event id
// without an event.
func (s *stream) addResumePoint() {
	if s.resumePoint != s.sentID {
		s.sentID = s.resumePoint
		s.pending = fmt.Appendf(s.pending, "id: %s\n\n", s.resumePoint)
	}
}

// end adds the reason why the watch ends. If the cluster has been replaced, it also
// resets the resume point: versions of the old cluster mean nothing in the new one.
func (s *stream) end(reason error) {
	_, p, _ := problemOf(reason)
	body, _ := json.Marshal(p)
	block := fmt.Appendf(nil, "event: end\ndata: %s\n\n", body)
	if mirror.ReasonOf(reason) == mirror.Ended && reason.Error() != errShutdown.Error() {
		block = append([]byte("id: 0\n"), block...)
	}
	s.add(block)
}

func (s *stream) add(block []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, block...)
	s.signalSend()
}

// signalSend wakes the sender. If too much is pending, it writes here, so that the
// reader of the events waits for the client. s.mu is held.
func (s *stream) signalSend() {
	if len(s.pending) >= flushSize {
		s.write()
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// write writes what is pending to the connection. s.mu is held.
func (s *stream) write() {
	if len(s.pending) == 0 || s.err != nil {
		s.pending = nil
		return
	}
	s.active = true
	if _, s.err = s.w.Write(s.pending); s.err != nil {
		s.cancel(s.err)
	}
	s.pending = s.pending[:0]
	if cap(s.pending) > maxIdleBuffer {
		s.pending = nil
	}
}

func (s *stream) flush() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write()
	if s.err == nil {
		if s.err = s.control.Flush(); s.err != nil {
			s.cancel(s.err)
		}
	}
}

// run sends what is pending until ctx ends, and a keep-alive if nothing was sent for an
// interval.
func (s *stream) run(ctx context.Context, keepAlive time.Duration) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.signal:
		case <-tick.C:
			s.mu.Lock()
			if !s.active && len(s.pending) == 0 {
				if s.addResumePoint(); len(s.pending) == 0 {
					s.pending = append(s.pending, ":\n\n"...)
				}
			}
			s.mu.Unlock()
			s.flush()
			s.mu.Lock()
			s.active = false
			s.mu.Unlock()
			continue
		}
		s.flush()
	}
}

// oneLine returns raw without line breaks, which would end the data field. The API
// server sends none.
func oneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return []byte("null") // cannot happen: the codec accepts only JSON
	}
	return b.Bytes()
}
