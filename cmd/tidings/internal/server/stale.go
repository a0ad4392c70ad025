package server

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
)

// warnStale says in the header of an answer from memory that it may be out of date, because
// the mirror does not hear of changes now: a Warning with the reason, and an Age in seconds
// since it last did.
func (s *Server) warnStale(w http.ResponseWriter, g *grant) {
	p := g.query.Params()
	if p.At != nil && !g.params.changes || p.Source == read.Live {
		return
	}
	why := p.Cluster.Connected().Problem()
	var contact time.Time
	if inf, ok := p.Cluster.Mirroring(g.query.Resource(), p.Namespace); ok {
		status := inf.Engine().Status()
		contact = status.LastContact
		switch {
		case why != "":
		case status.Phase == informer.Watching:
			return
		case status.LastError != nil:
			why = fmt.Sprintf("%s are not watched now (%s): %s", g.query.Resource(), status.Phase, cluster.PublicMessage(status.LastError))
		default:
			why = fmt.Sprintf("%s are not watched now (%s)", g.query.Resource(), status.Phase)
		}
	}
	if why == "" {
		return
	}
	w.Header().Set("Warning", "110 tidings "+strconv.QuoteToASCII(fmt.Sprintf("%.300s", why)))
	if !contact.IsZero() {
		w.Header().Set("Age", strconv.Itoa(int(math.Ceil(max(0, time.Since(contact)).Seconds()))))
	}
}
