package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// maxFolded is the number of pages of changes that are folded for one request.
const maxFolded = 4

// foldedAnswer is the answer to a request for folded changes.
type foldedAnswer struct {
	Data  []past.Change `json:"data"`
	Gaps  []*past.Gap   `json:"gaps,omitempty"`
	Begin *time.Time    `json:"begin,omitempty"` // of the history, if the changes are from it
	// ResourceVersion is the one up to which there are no other changes. With More, there
	// are changes after it that were not looked at.
	ResourceVersion string   `json:"resourceVersion"`
	More            bool     `json:"more,omitempty"`
	Refused         []string `json:"refused,omitempty"`
	Thinned         string   `json:"thinned,omitempty"`
}

// serveFolded answers with one change for each object, the newest first. Those since a
// resourceVersion are taken from the changes that the mirror retains, if they reach back to
// it, and from the history otherwise.
func (s *Server) serveFolded(w http.ResponseWriter, r *http.Request, g *grant) error {
	ctx := r.Context()
	q, now, err := s.seenQuery(ctx, g)
	if err != nil {
		return err
	}
	var out foldedAnswer
	if g.params.version > 0 {
		var changes []read.PastChange
		changes, out.ResourceVersion, err = s.reader.ChangesSince(ctx, q, g.params.version)
		if mirror.ReasonOf(err) == mirror.Expired && s.opts.Reads.History != nil {
			if q, err = s.sinceVersion(ctx, g, q); err == nil {
				err = s.foldPast(ctx, q, &out)
			}
		} else if err == nil {
			out.Data = fold(q, changes)
		}
	} else {
		err = s.foldPast(ctx, q, &out)
	}
	if err != nil {
		return err
	}
	if now != nil {
		out.Refused = now.Refused
	}
	s.warnStale(w, g)
	w.Header().Set("Cache-Control", "no-store")
	writeJSON(w, http.StatusOK, out)
	return nil
}

// sinceVersion returns a query for the changes since a version in the history, which the
// caller must be allowed to read: those of the present namespace may not be enough.
func (s *Server) sinceVersion(ctx context.Context, g *grant, q *read.Query) (*read.Query, error) {
	then, err := q.With(func(p *read.Params) { p.At, p.Until = &read.Moment{Version: g.params.version}, time.Now() })
	if err != nil {
		return nil, err
	}
	within, limited := then.Namespaces()
	if !limited {
		return then, s.authorizePast(ctx, g, then)
	}
	for _, namespace := range within {
		one, err := then.OfNamespace(namespace)
		if err == nil {
			err = s.authorizePast(ctx, g, one)
		}
		if err != nil {
			return nil, err
		}
	}
	return then, nil
}

func (s *Server) authorizePast(ctx context.Context, g *grant, q *read.Query) error {
	if s.opts.Gate == nil {
		return nil
	}
	attributes, unread := s.pastAttributes(ctx, q)
	return cmp.Or(whyAll(g.reviewer.Authorize(ctx, g.caller, attributes), q, attributes), unread)
}

// foldPast folds the changes of the history that a query selects.
func (s *Server) foldPast(ctx context.Context, q *read.Query, out *foldedAnswer) error {
	folded := map[string]int{}
	var all []read.PastChange
	var counts []int
	for page := 1; ; page++ {
		changes, meta, err := s.reader.ChangesBetween(ctx, q)
		if err != nil {
			return err
		}
		for _, c := range changes {
			key := string(c.Object.GetUID()) + "/" + c.Object.GetNamespace() + "/" + c.Object.GetName()
			i, known := folded[key]
			if !known {
				folded[key] = len(all)
				all, counts = append(all, c), append(counts, 1)
				continue
			}
			first := all[i]
			c.Before = first.Before
			switch {
			case first.Type == read.Added && c.Type == read.Modified:
				c.Type = read.Added
			case c.Type == read.Added && first.Type != read.Added: // it ceased to match for a time
				c.Type = read.Modified
			}
			all[i] = c
			counts[i]++
		}
		for _, gap := range meta.Gaps {
			out.Gaps = append(out.Gaps, gapOf(gap))
		}
		out.ResourceVersion, out.Begin, out.Thinned, out.More = meta.ResourceVersion, &meta.Begin, thinnedText(meta.Thinned), meta.Continue != ""
		if !out.More || page == maxFolded {
			break
		}
		if q, err = q.With(func(p *read.Params) { p.Continue = meta.Continue }); err != nil {
			return err
		}
	}
	out.Data = []past.Change{}
	for i, c := range all {
		if c, ok := foldedChange(c, isSecret(q)); ok {
			c.Changes = counts[i]
			out.Data = append(out.Data, c)
		}
	}
	slices.SortStableFunc(out.Data, func(a, b past.Change) int { return b.Time.Compare(a.Time) })
	return nil
}

func fold(q *read.Query, changes []read.PastChange) []past.Change {
	out := []past.Change{}
	for _, c := range changes {
		if one, ok := foldedChange(c, isSecret(q)); ok {
			out = append(out, one)
		}
	}
	return out
}

// foldedChange returns a change with its fields and without the objects. ok is false if
// nothing that means anything is different.
func foldedChange(c read.PastChange, secret bool) (out past.Change, ok bool) {
	out = past.Change{Type: string(c.Type), Time: c.Time, Namespace: c.Object.GetNamespace(), Name: c.Object.GetName(), UID: string(c.Object.GetUID()), ResourceVersion: c.ResourceVersion, Writers: c.Writers, Relist: c.Relist}
	if c.Type == read.Modified && c.Before != nil {
		if out.Fields = fieldsOf(c.Before, c.Object); secret {
			withhold(out.Fields)
		}
		return out, len(out.Fields) > 0
	}
	return out, true
}

func isSecret(q *read.Query) bool {
	r := q.Params().Resource
	return r.Group == "" && r.Resource == "secrets"
}

// harmlessFields are the beginnings of the paths of a Secret's fields that have none of its
// values. Annotations may have them: tools repeat objects there.
var harmlessFields = []string{".type", ".immutable", ".metadata.name", ".metadata.labels", ".metadata.uid", ".metadata.deletion", ".metadata.finalizers", ".metadata.ownerReferences"}

// withhold removes the values of a Secret's fields.
func withhold(fields []past.Field) {
	for i, f := range fields {
		if !slices.ContainsFunc(harmlessFields, func(begin string) bool { return strings.HasPrefix(f.Path, begin) }) {
			fields[i].Old, fields[i].New = nil, nil
		}
	}
}
