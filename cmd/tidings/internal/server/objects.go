package server

import (
	"bufio"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// serveObjects answers a get, a list or a watch.
func (s *Server) serveObjects(w http.ResponseWriter, r *http.Request) {
	var err error
	switch g := grantOf(r); {
	case g.params.table:
		err = s.serveTable(w, r, g)
	case g.params.window != nil:
		err = s.serveWindow(w, r, g)
	case g.params.folded:
		err = s.serveFolded(w, r, g)
	case g.params.changes:
		err = s.serveChanges(w, r, g)
	case g.params.tree:
		err = s.serveTree(w, r, g)
	case g.other != nil:
		err = s.serveDiff(w, r, g.query, g.other)
	case g.query.Params().Verb == read.Watch:
		err = s.serveWatch(w, r, g.query, lastEventID(r, g.params))
	case g.query.Params().Verb == read.Get:
		err = s.serveGet(w, r, g.query)
	default:
		err = s.serveList(w, r, g.query)
	}
	if err != nil && !clientGone(r) {
		failWith(w, timeoutError(r, err))
	}
}

// query parses a REST request.
func (s *Server) query(r *http.Request, rt route) (*read.Query, params, error) {
	p, err := parseParams(r.URL.RawQuery)
	if err != nil {
		return nil, p, err
	}
	var resource cluster.Resource
	if rt.versioned {
		resource, err = rt.cluster.ResolveGVR(r.Context(), schema.GroupVersionResource{Group: rt.group, Version: rt.version, Resource: rt.resource})
	} else {
		resource, err = rt.cluster.Resolve(r.Context(), rt.resource)
	}
	present := err
	if why := mirror.ReasonOf(err); (why == mirror.UnknownResource || why == mirror.Unreachable) && (p.at != "" || p.from != "" || p.changes || p.token != "") {
		if past, kept := s.reader.PastResource(rt.cluster, rt.group, rt.version, rt.resource); kept {
			resource, err = past, nil // the cluster served it once, or cannot be asked
		}
	}
	if err != nil {
		return nil, p, err
	}
	if p.window != nil && !resource.Namespaced {
		p.visible = false // a page does not know beforehand which resources are namespaced
	}
	if (p.window != nil || p.changes) && strings.Contains(p.namespace, ",") {
		if err := p.severalNamespaces(resource, rt); err != nil {
			return nil, p, err
		}
	}
	ask := read.Params{
		Cluster: rt.cluster, Resource: resource.GVR(), Verb: read.List, Namespace: p.namespace,
		Labels: p.labels, Fields: p.fields, Source: p.source, Limit: p.limit, Continue: p.token,
	}
	rest := rt.rest
	if len(rest) > 0 && resource.Namespaced {
		if p.namespace != "" && p.namespace != rest[0] {
			return nil, p, invalid(nil, "the path has namespace %.80q, the query %.80q", rest[0], p.namespace)
		}
		ask.Namespace, rest = rest[0], rest[1:]
	}
	switch len(rest) {
	case 1:
		ask.Verb, ask.Name = read.Get, rest[0]
	case 2:
		return nil, p, invalid(nil, "%s are not namespaced: use /{group}/{version}/{resource}/{name}", resource)
	}
	if p.name != "" {
		if len(rt.rest) > 0 {
			return nil, p, invalid(nil, "the path has a namespace or a name: leave out name=")
		}
		ask.Verb, ask.Name = read.Get, p.name
	}
	if err := checkNames(ask.Namespace, ask.Name); err != nil {
		return nil, p, err
	}
	allowed := listParams
	switch {
	case p.changes:
		if allowed = changesParams; p.folded {
			allowed = foldedParams
		}
		if p.version, _ = strconv.ParseUint(p.since, 10, 64); p.folded && p.version > 0 {
			if p.until != "" {
				return nil, p, invalid(nil, "until: changes since a resourceVersion are those until now")
			}
			break
		}
		since, until, err := parseSpan(p.since, p.until, time.Now())
		if err != nil {
			return nil, p, err
		}
		ask.At, ask.Until = &read.Moment{Time: since}, until
	case p.table:
		allowed = tableParams
	case p.window != nil:
		if allowed = windowParams; p.at == "" {
			ask.Verb = read.Watch
		} else {
			ask.Verb = read.List // what was then does not change
		}
	case p.watch:
		ask.Verb, allowed = read.Watch, watchParams
	case ask.Name != "" && p.diff:
		allowed, p.at = diffParams, p.from
	case ask.Name != "" && p.tree:
		allowed = treeParams
	case ask.Name != "":
		allowed = getParams
	}
	if p.name != "" {
		allowed = append(slices.Clip(allowed), "name", "namespace")
	}
	if err := p.check(allowed); err != nil {
		return nil, p, err
	}
	if p.at != "" {
		at, err := read.ParseMoment(p.at, time.Now())
		if err != nil {
			return nil, p, err
		}
		ask.At = &at
	}
	q, err := read.NewQuery(ask)
	if err == nil && q.Params().At == nil && present != nil { // a token of the present
		err = present
	}
	if err == nil {
		err = q.Bind(resource)
	}
	if err == nil && p.visible && q.Params().At != nil {
		err = invalid(nil, "visible=true shows the present: name a namespace, or ask for all of them")
	}
	if err == nil && (p.visible || p.namespaces != nil) {
		_, err = q.Within([]string{})
	}
	return q, p, err
}

// checkNames checks the name of a namespace and of an object; either may be empty.
func checkNames(namespace, name string) error {
	if problems := validation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
		return invalid(nil, "%.80q cannot be the name of a namespace: %s", namespace, strings.Join(problems, "; "))
	}
	if problems := content.IsPathSegmentName(name); name != "" && len(problems) > 0 {
		return invalid(nil, "%.80q cannot be the name of an object: %s", name, strings.Join(problems, "; "))
	}
	return nil
}

func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, q *read.Query) error {
	var o *read.Object
	var meta read.ListMeta
	var err error
	if q.Params().At != nil {
		var past read.Past
		o, past, err = s.reader.GetPast(q)
		meta = read.ListMeta{ResourceVersion: past.ResourceVersion, Past: &past}
	} else {
		o, meta.ResourceVersion, err = s.reader.Get(r.Context(), q, read.Any, 0)
	}
	if err != nil {
		return err
	}
	s.warnStale(w, grantOf(r))
	l := startAnswer(w)
	o.VisitJSON(func(content []byte) { _, _ = l.Write(content) })
	l.finish(meta)
	return nil
}

func (s *Server) serveList(w http.ResponseWriter, r *http.Request, q *read.Query) error {
	if g := grantOf(r); g.params.visible {
		namespaces, _, err := s.visible(r.Context(), g, q)
		if err == nil {
			g.sees(namespaces)
		}
		if err == nil && namespaces != nil {
			q, err = q.Within(namespaces)
		}
		if err != nil {
			return err
		}
	}
	if q.Params().Limit <= 0 || q.Params().Limit > largePage {
		leave, err := s.admitAnswer(r.Context(), kubeapi.Cost{Bytes: kubeapi.StreamBytes})
		if err != nil {
			return err
		}
		defer leave()
	}
	var l *answer
	begin := func() {
		if l == nil {
			s.warnStale(w, grantOf(r))
			l = startAnswer(w)
			_ = l.WriteByte('[')
		}
	}
	meta, err := s.reader.List(r.Context(), q, func(o *read.Object) error {
		if l == nil {
			begin()
		} else {
			_ = l.WriteByte(',')
		}
		err := r.Context().Err()
		if err == nil {
			o.VisitJSON(func(content []byte) { _, err = l.Write(content) })
		}
		return err
	})
	if err != nil && l != nil {
		// The status has been sent. Abort, so that the client does not take the
		// partial response for the whole.
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

// answer writes {"data": …, "resourceVersion": "…"}. Like a bufio.Writer, it keeps
// errors of the connection until Flush.
type answer struct{ *bufio.Writer }

func startAnswer(w http.ResponseWriter) *answer {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	a := &answer{bufio.NewWriterSize(w, 32<<10)}
	_, _ = a.WriteString(`{"data":`)
	return a
}

func (a *answer) finish(meta read.ListMeta) {
	_, _ = a.WriteString(`,"resourceVersion":`)
	_, _ = a.Write(quoted(meta.ResourceVersion))
	if meta.Past != nil {
		_, _ = a.WriteString(`,"moment":`)
		_ = json.NewEncoder(a).Encode(momentOf(meta.Past))
	}
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
	b, _ := json.Marshal(s) // cannot fail for a string
	return b
}
