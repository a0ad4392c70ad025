package read

import (
	"cmp"
	"slices"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// selection is what of a query an informer can select by itself. possible says that
// anything can match at all. A field selector that asks for one namespace is as good
// as a namespace.
func (q *Query) selection() (s informer.Query, possible bool) {
	s = informer.Query{Namespace: q.Namespace(), Labels: q.ask.Labels}
	if q.ask.Fields == nil {
		return s, true
	}
	if ns, ok := q.ask.Fields.RequiresExactMatch("metadata.namespace"); ok && ns != "" && ns != s.Namespace {
		return s, false
	}
	return s, s.Namespace == "" || q.among(s.Namespace)
}

// collect appends what matches behind a key: everything, or with a limit no more
// than that.
func (q *Query) collect(view *informer.View[*codec.Raw], after string, limit int64) []*Object {
	s, possible := q.selection()
	if !possible {
		return nil
	}
	s.After = after
	var found []*Object
	full := func() bool { return limit > 0 && int64(len(found)) >= limit }
	for _, s.Namespace = range q.inKeyOrder(s.Namespace) {
		for o := range view.All(s) {
			if q.matchesFields(o, nil) {
				found = append(found, o)
			}
			if full() {
				return found
			}
		}
	}
	return found
}

// matches says whether an object is among those asked for. It is for what happens
// to objects, which is shown to the selectors of all watches; seen remembers what
// those have read.
func (q *Query) matches(o *Object, seen *selectorCache) bool {
	if q.ask.Namespace != "" && o.GetNamespace() != q.ask.Namespace || !q.among(o.GetNamespace()) {
		return false
	}
	if q.ask.Labels != nil && !q.ask.Labels.Empty() && !q.ask.Labels.Matches(seen.labels(o)) {
		return false
	}
	return q.matchesFields(o, seen)
}

func (q *Query) matchesFields(o *Object, seen *selectorCache) bool {
	return q.ask.Fields == nil || q.ask.Fields.Empty() || q.ask.Fields.Matches(attributes{q, o, seen})
}

// among says that a namespace is one of those the query is limited to.
func (q *Query) among(namespace string) bool {
	if q.within == nil {
		return true
	}
	_, ok := slices.BinarySearch(q.within, namespace)
	return ok
}

// inKeyOrder are the namespaces to be looked through, in the order of the keys of
// their objects, where each ends with a slash. An empty one stands for all.
func (q *Query) inKeyOrder(only string) []string {
	if q.within == nil || only != "" {
		return []string{only}
	}
	out := slices.Clone(q.within)
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(a+"/", b+"/") })
	return out
}

// count is the number of objects in the query's namespaces behind a key; it does
// not count beyond most, if that is not 0.
func (q *Query) count(view *informer.View[*codec.Raw], after string, most int) int {
	n := 0
	for _, namespace := range q.inKeyOrder(q.Namespace()) {
		if namespace == "" && after == "" {
			return view.Len()
		}
		for range view.All(informer.Query{Namespace: namespace, After: after}) {
			if n++; n == most {
				return n
			}
		}
	}
	return n
}

// namespaces lists the namespaces that hold objects, sorted, and most of them at
// most; more says that there are others. It looks at one object of each.
func namespaces(view *informer.View[*codec.Raw], most int) (found []string, more bool) {
	after := ""
	for {
		next := view.List(informer.Query{After: after, Limit: 1})
		if len(next) == 0 || len(found) == most {
			slices.Sort(found)
			return found, len(next) > 0
		}
		found = append(found, next[0].GetNamespace())
		after = object.Key(next[0].GetNamespace(), afterAll)
	}
}

// afterAll is behind every name.
const afterAll = "\xff"
