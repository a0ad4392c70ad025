package read

import (
	"cmp"
	"context"
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

// collect returns what matches behind a key: everything, or with a limit no more
// than that. The error is the context's: a selector may be long, and the objects many.
func (q *Query) collect(ctx context.Context, view *informer.View[*codec.Raw], after string, limit int64) ([]*Object, error) {
	s, possible := q.selection()
	if !possible {
		return nil, nil
	}
	s.After = after
	var found []*Object
	looked, seen := 0, &fieldValues{}
	for _, s.Namespace = range q.inKeyOrder(s.Namespace) {
		for o := range view.All(s) {
			if looked++; looked%lookEvery == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if !q.everyField() && !q.ask.Fields.Matches(attributes{query: q, Object: o, seen: seen}) {
				continue
			}
			if found = append(found, o); limit > 0 && int64(len(found)) >= limit {
				return found, nil
			}
		}
	}
	return found, nil
}

// lookEvery is after how many objects it is looked whether the answer is still wanted.
const lookEvery = 64

func (q *Query) everyField() bool { return q.ask.Fields == nil || q.ask.Fields.Empty() }

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
	return q.everyField() || q.ask.Fields.Matches(attributes{query: q, Object: o, cache: seen})
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
