package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
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
	out := &windowStream{w: w, control: http.NewResponseController(w)}
	for {
		err := s.sendWindow(ctx, g, out, r.Method == http.MethodHead)
		switch {
		case errors.Is(err, errNamespacesChanged):
			continue
		case !out.begun:
			return err
		case err != nil:
			out.end(err)
		}
		return nil
	}
}

// sendWindow sends frames until ctx ends or, with visible=true, until the namespaces
// that the caller may read change.
func (s *Server) sendWindow(ctx context.Context, g *grant, out *windowStream, headOnly bool) error {
	q := g.query
	var namespaces []string // nil: all
	if g.params.visible {
		var err error
		if namespaces, _, err = s.visible(ctx, g, q); err != nil {
			return err
		}
		if namespaces != nil {
			if q, err = q.Within(namespaces); err != nil {
				return err
			}
		}
		g.sees(namespaces)
		roundCtx, stop := s.reauthorizeVisible(ctx, g, g.query, namespaces)
		defer stop()
		ctx = roundCtx
	}
	window, err := s.tables.Open(ctx, q, *g.params.window)
	if err != nil {
		return lostOr(ctx, err)
	}
	defer window.Close()
	if out.begin(); headOnly {
		return nil
	}
	if g.params.visible {
		out.namespaces(namespaces)
	}
	for {
		frame, err := window.Next(ctx)
		if err != nil {
			return lostOr(ctx, err)
		}
		if out.send(frame); out.err != nil {
			return out.err
		}
	}
}

// lostOr returns the error that ends an open request: why the caller lost the right, or
// err.
func lostOr(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errNamespacesChanged):
		return errNamespacesChanged
	case access.IsLost(ctx):
		return context.Cause(ctx)
	}
	return err
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

// namespaces sends which namespaces the frames that follow are limited to; nil means
// none.
func (s *windowStream) namespaces(visible []string) {
	content, _ := json.Marshal(struct {
		All        bool     `json:"all"`
		Namespaces []string `json:"namespaces"`
	}{visible == nil, append([]string{}, visible[:min(len(visible), livetable.MaxRows)]...)}) // cannot fail
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
