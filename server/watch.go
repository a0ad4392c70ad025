package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// serveWatch answers with server-sent events. An error is returned only before
// anything was sent.
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
	w.Header().Set("X-Accel-Buffering", "no") // proxies are not to wait for more
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil
	}
	st := &stream{w: w, control: http.NewResponseController(w), signal: make(chan struct{}, 1), cancel: cancel}
	st.add(fmt.Appendf(nil, "retry: %d\n\n", reconnect.Milliseconds()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		st.pump(ctx, s.opts.KeepAlive)
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

// stream writes events to one client. One goroutine adds what there is to say,
// another sends it: what comes while a send is under way goes out together
// with the next.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	signal  chan struct{} // there is something to send
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	pending []byte
	at      string // position behind the last event, told or not
	told    string // the last id the client has
	sent    bool   // something, since the last look
	err     error
}

const (
	// sendAt is how much is collected at most before it is sent.
	sendAt = 32 << 10
	// keepBuffer is how much memory a silent stream may hold.
	keepBuffer = 4 << 10
)

// event adds an event, if it is one to tell. It returns false when the client
// is gone.
func (s *stream) event(e read.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e.Position != "" {
		s.at = e.Position
	}
	if e.Type == read.Bookmark {
		// Told with the next event or instead of silence; except that a
		// client who is about to be told a part should know that it is one.
		if e.Position == "0" {
			s.tellPosition()
		}
		return s.err == nil
	}
	if s.at != s.told {
		s.told = s.at
		s.pending = fmt.Appendf(s.pending, "id: %s\n", s.at)
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
	s.wake()
	return s.err == nil
}

// tellPosition adds a block without data: it moves the client's last event id
// and is no event.
func (s *stream) tellPosition() {
	if s.at != s.told {
		s.told = s.at
		s.pending = fmt.Appendf(s.pending, "id: %s\n\n", s.at)
	}
}

// end adds why the watch ends. Whoever comes back to a cluster that has been
// replaced must not go on by versions of the other.
func (s *stream) end(why error) {
	_, p, _ := explain(why)
	body, _ := json.Marshal(p)
	block := fmt.Appendf(nil, "event: end\ndata: %s\n\n", body)
	if mirror.ReasonOf(why) == mirror.Ended && why.Error() != errShutdown.Error() {
		block = append([]byte("id: 0\n"), block...)
	}
	s.add(block)
}

func (s *stream) add(block []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, block...)
	s.wake()
}

// wake lets the pump send, or does it here if that does not keep up: then the
// reader of the events waits for the client. s.mu is held.
func (s *stream) wake() {
	if len(s.pending) >= sendAt {
		s.write()
	}
	select {
	case s.signal <- struct{}{}:
	default:
	}
}

// write hands what is pending to the connection. s.mu is held.
func (s *stream) write() {
	if len(s.pending) == 0 || s.err != nil {
		s.pending = nil
		return
	}
	s.sent = true
	if _, s.err = s.w.Write(s.pending); s.err != nil {
		s.cancel(s.err)
	}
	s.pending = s.pending[:0]
	if cap(s.pending) > keepBuffer {
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

// pump sends what there is to send until ctx ends, and something every so often
// if there is nothing.
func (s *stream) pump(ctx context.Context, keepAlive time.Duration) {
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.signal:
		case <-tick.C:
			s.mu.Lock()
			if !s.sent && len(s.pending) == 0 {
				if s.tellPosition(); len(s.pending) == 0 {
					s.pending = append(s.pending, ":\n\n"...)
				}
			}
			s.mu.Unlock()
			s.flush()
			s.mu.Lock()
			s.sent = false
			s.mu.Unlock()
			continue
		}
		s.flush()
	}
}

// oneLine is raw without line breaks, which would end the field. The API
// server sends none.
func oneLine(raw []byte) []byte {
	if !bytes.ContainsAny(raw, "\r\n") {
		return raw
	}
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return []byte("null") // not JSON, which the codec does not let pass
	}
	return b.Bytes()
}
