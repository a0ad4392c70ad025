package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// serveWindow answers with the frames of a window of a live table, as server-sent
// events. It returns an error only before anything was sent.
func (s *Server) serveWindow(w http.ResponseWriter, r *http.Request, g *grant) error {
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("a page of another origin may not open windows"))
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	defer context.AfterFunc(s.draining, func() { cancel(&mirror.Error{Reason: mirror.Ended, Message: errShutdown.Error()}) })()
	if p := partOf(ctx); p != nil {
		return s.servePart(ctx, w, g, p)
	}
	out := &windowStream{w: w, control: http.NewResponseController(w)}
	err := s.eachSeen(ctx, g, func(ctx context.Context, q *read.Query, now *seen) error {
		held, err := s.tables.Hold(ctx, q, *g.params.window)
		if err != nil {
			return err
		}
		defer held.Release()
		window, err := held.Open(*g.params.window)
		if err != nil {
			return err
		}
		defer window.Close()
		if out.begin(); r.Method == http.MethodHead {
			return nil
		}
		if now != nil {
			out.seen(now)
		}
		for out.err == nil {
			frame, err := window.Next(ctx)
			if err != nil {
				return err
			}
			out.send(frame)
		}
		return out.err
	})
	if err == nil || !out.begun {
		return err
	}
	out.end(err)
	return nil
}

// windowStream writes the frames of a window. A write waits until the client reads;
// meanwhile what changes is folded into the next frame.
type windowStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	err     error
}

func (s *windowStream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("Cache-Control", "no-store")
	s.w.Header().Set("X-Accel-Buffering", "no") // proxies must not buffer
	s.w.WriteHeader(http.StatusOK)
}

func (s *windowStream) send(frame []byte) { s.write("data: %s\n\n", frame) }

// seen sends which namespaces the frames that follow are limited to.
func (s *windowStream) seen(now *seen) {
	content, _ := json.Marshal(now) // cannot fail
	s.write("event: visible\ndata: %s\n\n", content)
}

// end sends the reason why the window ends.
func (s *windowStream) end(reason error) {
	_, p, _ := problemOf(reason)
	content, _ := json.Marshal(p) // cannot fail
	s.write("event: end\ndata: %s\n\n", content)
}

func (s *windowStream) write(format string, content []byte) {
	if s.err != nil {
		return
	}
	if _, s.err = fmt.Fprintf(s.w, format, content); s.err == nil {
		s.err = s.control.Flush()
	}
}
