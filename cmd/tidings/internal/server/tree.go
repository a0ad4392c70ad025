package server

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
)

// serveTree answers with what belongs to an object.
func (s *Server) serveTree(w http.ResponseWriter, r *http.Request, g *grant) error {
	root, o, err := s.side(r.Context(), g.query)
	if err != nil {
		return err
	}
	now := time.Now()
	if root.Moment != nil {
		now = root.Moment.Time
	}
	tree, err := s.relations(g).Tree(r.Context(), g.query, o, now, relations.Options{Neighbours: g.params.neighbours})
	if err != nil {
		return err
	}
	g.related = tree.Shown()
	answer := map[string]any{"data": tree, "resourceVersion": root.ResourceVersion}
	if root.Moment != nil {
		answer["moment"] = root.Moment
	}
	s.warnStale(w, g)
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// relations returns a reader of what the caller may see. Each query is reviewed as if it
// were a request of its own.
func (s *Server) relations(g *grant) *relations.Reader {
	reader := &relations.Reader{Reads: s.reader, Edges: s.opts.Edges}
	if s.opts.Gate != nil {
		reader.Authorize = func(ctx context.Context, q *read.Query) error {
			attributes, unread := s.pastAttributes(ctx, q)
			return cmp.Or(g.reviewer.Authorize(ctx, g.caller, attributes), unread)
		}
	}
	return reader
}
