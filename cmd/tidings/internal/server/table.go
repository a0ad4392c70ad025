package server

import (
	"encoding/json"
	"net/http"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// serveTable answers with some rows of a table as it is now, or was at a moment. It is the
// first frame of a window of the whole table.
func (s *Server) serveTable(w http.ResponseWriter, r *http.Request, g *grant) error {
	q, now, err := s.seenQuery(r.Context(), g)
	if err != nil {
		return err
	}
	held, err := s.tables.Hold(r.Context(), q, *g.params.window)
	if err != nil {
		return err
	}
	defer held.Release()
	window, err := held.Open(*g.params.window)
	if err != nil {
		return err
	}
	defer window.Close()
	frame, err := window.Complete(r.Context())
	if err != nil {
		return err
	}
	var version struct {
		ResourceVersion string `json:"resourceVersion"`
	}
	_ = json.Unmarshal(frame, &version) // cannot fail: it is a frame
	s.warnStale(w, g)
	l := startAnswer(w)
	_, _ = l.Write(frame)
	if now != nil {
		_, _ = l.WriteString(`,"visible":`)
		_ = json.NewEncoder(l).Encode(now)
	}
	l.finish(read.ListMeta{ResourceVersion: version.ResourceVersion})
	return nil
}
