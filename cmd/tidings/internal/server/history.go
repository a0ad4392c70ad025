package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

func momentOf(p *read.Past) past.Moment {
	m := past.Moment{Time: p.Time, ResourceVersion: p.ResourceVersion, Thinned: thinnedText(p.Thinned)}
	if p.Gap != nil {
		m.Gap = gapOf(*p.Gap)
	}
	return m
}

func gapOf(g history.Gap) *past.Gap {
	out := &past.Gap{From: g.From, Reason: g.Reason, Late: g.Late}
	if !g.To.IsZero() {
		out.To = &g.To
	}
	return out
}

func thinnedText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return "at most one version of an object in " + d.String() + " is kept"
}

// historyState describes what keeps the history from being written, "" if nothing does.
func historyState(h *history.Recording) string {
	for _, series := range h.Store().All() {
		if stats := series.Stats(); stats.Writing && stats.Failing != nil {
			return "it cannot be written: " + stats.Failing.Error()
		}
	}
	return ""
}

// servePastDiscovery answers with what the cluster has served, as far as the history knows
// it. The cluster is not asked, so it need not be there.
func (s *Server) servePastDiscovery(w http.ResponseWriter, r *http.Request) {
	err := error(invalid(nil, "this server keeps no history: start it with --history"))
	if kept := s.opts.Reads.History; kept != nil {
		if document, ok := kept.Store().Discovery(routeOf(r).cluster.Name())[strings.TrimSuffix(r.URL.Path, "/")]; ok {
			writeJSON(w, http.StatusOK, document)
			return
		}
		err = apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	s.refuse(w, r, err)
}

// defaultSpan is how far back changes are listed if since is not given.
const defaultSpan = time.Hour

// parseSpan parses the times between which changes are listed.
func parseSpan(since, until string, now time.Time) (from, to time.Time, err error) {
	from, to = now.Add(-defaultSpan), now
	parse := func(name, value string, into *time.Time) {
		if value == "" || err != nil {
			return
		}
		var m read.Moment
		if m, err = read.ParseMoment(value, now); err == nil && m.Time.IsZero() {
			err = invalid(nil, "%s: %.80q is a resourceVersion: give a time, or a duration before now such as -15m", name, value)
		}
		*into = m.Time
	}
	parse("since", since, &from)
	parse("until", until, &to)
	if err == nil && to.Before(from) {
		err = invalid(nil, "until is before since")
	}
	return from, to, err
}

// serveChanges answers with the changes of an object or of a selection.
func (s *Server) serveChanges(w http.ResponseWriter, r *http.Request, g *grant) error {
	q, now, err := s.seenQuery(r.Context(), g)
	if err != nil {
		return err
	}
	if g.params.counts > 0 {
		return s.serveCounts(w, r, q, g.params.counts, now)
	}
	changes, meta, err := s.reader.ChangesBetween(r.Context(), q)
	if err != nil {
		return err
	}
	s.warnStale(w, g)
	l := startAnswer(w)
	_ = l.WriteByte('[')
	encoder := json.NewEncoder(l)
	encoder.SetEscapeHTML(false)
	for i, c := range changes {
		if i > 0 {
			_ = l.WriteByte(',')
		}
		if err := encoder.Encode(changeOf(c, g.params.objects)); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	_ = l.WriteByte(']')
	gaps := []*past.Gap{}
	for _, g := range meta.Gaps {
		gaps = append(gaps, gapOf(g))
	}
	_, _ = l.WriteString(`,"gaps":`)
	_ = encoder.Encode(gaps)
	_, _ = l.WriteString(`,"begin":`)
	_ = encoder.Encode(meta.Begin)
	if now != nil && len(now.Refused) > 0 {
		_, _ = l.WriteString(`,"refused":`)
		_ = encoder.Encode(now.Refused)
	}
	if meta.Thinned != 0 {
		_, _ = l.WriteString(`,"thinned":`)
		_, _ = l.Write(quoted(thinnedText(meta.Thinned)))
	}
	l.finish(read.ListMeta{ResourceVersion: meta.ResourceVersion, Continue: meta.Continue, Remaining: -1})
	return nil
}

// serveCounts answers with how far back the history reaches, and the number of changes in
// each part of a time.
func (s *Server) serveCounts(w http.ResponseWriter, r *http.Request, q *read.Query, parts int, now *seen) error {
	c, err := s.reader.CountChanges(r.Context(), q, parts)
	if err != nil {
		return err
	}
	out := struct {
		Data    []int       `json:"data"`
		Begin   *time.Time  `json:"begin,omitempty"`
		End     *time.Time  `json:"end,omitempty"`
		Since   time.Time   `json:"since"`
		Until   time.Time   `json:"until"`
		Gaps    []*past.Gap `json:"gaps"`
		Refused []string    `json:"refused,omitempty"`
	}{Data: c.Counts, Since: q.Params().At.Time, Until: c.Until, Gaps: []*past.Gap{}}
	if !c.Begin.IsZero() {
		out.Begin, out.End = &c.Begin, &c.End
	}
	for _, g := range c.Gaps {
		out.Gaps = append(out.Gaps, gapOf(g))
	}
	if now != nil {
		out.Refused = now.Refused
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

// changeOf returns a change with its fields, or with the whole objects.
func changeOf(c read.PastChange, objects bool) past.Change {
	out := past.Change{Type: string(c.Type), Time: c.Time, Namespace: c.Object.GetNamespace(), Name: c.Object.GetName(), UID: string(c.Object.GetUID()), ResourceVersion: c.ResourceVersion, Writers: c.Writers, Owners: c.Owners(), Relist: c.Relist}
	if c.Type != read.Modified || c.Before == nil || objects {
		if out.Object = c.Object.JSON(); c.Before != nil && objects {
			out.Before = c.Before.JSON()
		}
		return out
	}
	out.Fields = fieldsOf(c.Before, c.Object)
	return out
}
