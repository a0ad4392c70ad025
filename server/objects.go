package server

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/mirror"
)

// serveObjects answers a get, a list or a watch.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request) {
	var err error
	switch q, p := grantOf(r).query, grantOf(r).params; {
	case p.watch:
		err = s.serveWatch(w, r, q, lastEventID(r, p))
	case q.Name != "":
		err = s.serveGet(w, r, q)
	default:
		err = s.serveList(w, r, q)
	}
	if err != nil && !unheard(r) {
		failWith(w, inTime(r, err))
	}
}

// query makes a query of a request.
func (s *Server) query(r *http.Request, rt route) (mirror.Query, params, error) {
	var q mirror.Query
	p, err := parseParams(r.URL.RawQuery)
	if err != nil {
		return q, p, err
	}
	if rt.versioned {
		q.Target, err = s.mirror.ResolveGVR(r.Context(), rt.cluster, schema.GroupVersionResource{Group: rt.group, Version: rt.version, Resource: rt.resource})
	} else {
		q.Target, err = s.mirror.Resolve(r.Context(), rt.cluster, rt.resource)
	}
	if err != nil {
		return q, p, err
	}
	q.Namespace, q.Labels, q.Fields = p.namespace, p.labels, p.fields
	q.Limit, q.Continue, q.Source = p.limit, p.token, p.source
	rest := rt.rest
	if len(rest) > 0 && q.Resource.Namespaced {
		if p.namespace != "" && p.namespace != rest[0] {
			return q, p, bad(nil, "the path says namespace %q, the query %q", rest[0], p.namespace)
		}
		q.Namespace, rest = rest[0], rest[1:]
	}
	switch len(rest) {
	case 1:
		if wrong := content.IsPathSegmentName(rest[0]); len(wrong) > 0 {
			return q, p, bad(nil, "%.80q cannot be the name of an object: %s", rest[0], strings.Join(wrong, "; "))
		}
		q.Name = rest[0]
	case 2:
		return q, p, bad(nil, "%s are not namespaced: ask for /{group}/{version}/{resource}/{name}", q.Resource)
	}
	exist := listParams
	switch {
	case p.watch:
		exist = watchParams
	case q.Name != "":
		exist = getParams
	}
	if err := p.fit(r.URL.RawQuery, exist); err != nil || !p.visible {
		return q, p, err
	}
	return q, p, fitsVisible(q)
}

func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, q mirror.Query) error {
	o, version, err := s.mirror.Get(r.Context(), q)
	if err != nil {
		return err
	}
	l := startAnswer(w)
	o.LookJSON(func(content []byte) { _, _ = l.Write(content) })
	l.finish(mirror.ListMeta{ResourceVersion: version})
	return nil
}

func (s *Server) serveList(w http.ResponseWriter, r *http.Request, q mirror.Query) error {
	if g := grantOf(r); g.params.visible {
		var err error
		if q.Namespaces, _, err = s.visible(r.Context(), g, q); err != nil {
			return err
		}
	}
	if q.Limit <= 0 || q.Limit > manyAre {
		leave, err := s.mayAnswer(r.Context(), kubeapi.Cost{Bytes: kubeapi.StreamBytes})
		if err != nil {
			return err
		}
		defer leave()
	}
	var l *answer
	begin := func() {
		if l == nil {
			l = startAnswer(w)
			_ = l.WriteByte('[')
		}
	}
	meta, err := s.mirror.List(r.Context(), q, func(o *mirror.Object) error {
		if l == nil {
			begin()
		} else {
			_ = l.WriteByte(',')
		}
		err := r.Context().Err()
		if err == nil {
			o.LookJSON(func(content []byte) { _, err = l.Write(content) })
		}
		return err
	})
	if err != nil && l != nil {
		// The status is out. All that is left is to make sure that nobody
		// takes what was sent for the whole.
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		return err
	}
	begin()
	_ = l.WriteByte(']')
	l.finish(meta)
	return nil
}

// answer writes {"data": …, "resourceVersion": "…"}. Errors of the connection
// stay until they are asked for, as is bufio's way.
type answer struct{ *bufio.Writer }

func startAnswer(w http.ResponseWriter) *answer {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	a := &answer{bufio.NewWriterSize(w, 32<<10)}
	_, _ = a.WriteString(`{"data":`)
	return a
}

func (a *answer) finish(meta mirror.ListMeta) {
	_, _ = a.WriteString(`,"resourceVersion":`)
	_, _ = a.Write(quoted(meta.ResourceVersion))
	if meta.Continue != "" {
		_, _ = a.WriteString(`,"continue":`)
		_, _ = a.Write(quoted(meta.Continue))
		if meta.Remaining >= 0 {
			_, _ = a.WriteString(`,"remaining":` + strconv.FormatInt(meta.Remaining, 10))
		}
	}
	_, _ = a.WriteString("}\n")
	if a.Flush() != nil {
		panic(http.ErrAbortHandler)
	}
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return b
}

// named makes a query for one object one for all of that name, to watch.
func named(q mirror.Query) mirror.Query {
	if q.Name != "" {
		one := fields.OneTermEqualSelector("metadata.name", q.Name)
		if q.Fields != nil {
			one = fields.AndSelectors(q.Fields, one)
		}
		q.Fields, q.Name = one, ""
	}
	return q
}
