package server

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/diff"
	"github.com/tidings-io/tidings/cmd/tidings/internal/past"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// otherQuery returns the query of the object that a query's object is compared with: the
// one of the same resource that with= names, or the same one, at the moment to=.
func otherQuery(q *read.Query, p params) (*read.Query, error) {
	ask := q.Params()
	ask.At = nil
	switch namespace, name, namespaced := strings.Cut(p.with, "/"); {
	case p.with == "":
	case namespaced && !q.Resource().Namespaced:
		return nil, invalid(nil, "with: %.80q: %s are not namespaced: give a name alone", p.with, q.Resource())
	case namespaced && (namespace == "" || name == ""):
		return nil, invalid(nil, "with: %.80q is not namespace/name", p.with)
	case namespaced:
		ask.Namespace, ask.Name = namespace, name
	default:
		ask.Name = namespace
	}
	if p.to != "" {
		at, err := read.ParseMoment(p.to, time.Now())
		if err != nil {
			return nil, err
		}
		ask.At = &at
	}
	if err := checkNames(ask.Namespace, ask.Name); err != nil {
		return nil, err
	}
	other, err := read.NewQuery(ask)
	if err == nil {
		err = other.Bind(q.Resource())
	}
	return other, err
}

// authorizeOther parses and authorizes the second object of a difference.
func (s *Server) authorizeOther(ctx context.Context, g *grant) (err error) {
	if g.other, err = otherQuery(g.query, g.params); err != nil {
		return err
	}
	attributes, unread := s.pastAttributes(ctx, g.other)
	second := authorized{attributes, allowedWithoutReview("callers are not authenticated")}
	if s.opts.Gate != nil {
		decision, err := g.reviewer.Decide(ctx, g.caller, attributes)
		second.decision = &decision
		if err != nil {
			g.authorized = second // a refusal is logged with what was refused
			return whyAll(err, g.other, attributes)
		}
	}
	if one, two := g.query.Params(), g.other.Params(); one.Namespace != two.Namespace || one.Name != two.Name {
		g.second = &second
	}
	return unread
}

// side is one of the two objects of a difference.
type side struct {
	Namespace       string       `json:"namespace,omitempty"`
	Name            string       `json:"name"`
	ResourceVersion string       `json:"resourceVersion"`
	Moment          *past.Moment `json:"moment,omitempty"` // nil: now
}

// serveDiff answers with what differs between two objects of one resource, each at a
// moment of its own.
func (s *Server) serveDiff(w http.ResponseWriter, r *http.Request, first, second *read.Query) error {
	from, old, err := s.side(r.Context(), first)
	if err != nil {
		return err
	}
	to, now, err := s.side(r.Context(), second)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]any{"data": fieldsOf(old, now), "from": from, "to": to})
	return nil
}

func (s *Server) side(ctx context.Context, q *read.Query) (side, *read.Object, error) {
	var out side
	var o *read.Object
	var err error
	if q.Params().At == nil {
		o, _, err = s.reader.Get(ctx, q, read.Any, 0)
	} else {
		var at read.Past
		o, at, err = s.reader.GetPast(q)
		m := momentOf(&at)
		out.Moment = &m
	}
	if err != nil {
		return out, nil, err
	}
	out.Namespace, out.Name, out.ResourceVersion = o.GetNamespace(), o.GetName(), o.GetResourceVersion()
	return out, o, nil
}

// fieldsOf returns what differs between two objects, field by field.
func fieldsOf(old, now *read.Object) []past.Field {
	return past.FieldsOf(diff.Objects(exactly(old), exactly(now)))
}

// exactly decodes an object with its numbers as they are written.
func exactly(o *read.Object) (out map[string]any) {
	d := json.NewDecoder(bytes.NewReader(o.JSON()))
	d.UseNumber()
	_ = d.Decode(&out) // cannot fail: it is valid JSON
	return out
}
