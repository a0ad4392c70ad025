package read

import (
	"cmp"
	"context"
	"slices"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

// selection is the part of a query that an informer can select by itself. possible is
// false if no object can match. A field selector that requires one namespace is
// treated as that namespace.
func (q *Query) selection() (s informer.Query, possible bool) {
	s = informer.Query{Namespace: q.Namespace(), Labels: q.params.Labels}
	if q.params.Fields == nil {
		return s, true
	}
	if ns, ok := q.params.Fields.RequiresExactMatch("metadata.namespace"); ok && ns != "" && ns != s.Namespace {
		return s, false
	}
	return s, s.Namespace == "" || q.includes(s.Namespace)
}

// collect returns the matching objects after a key, at most limit of them if limit is
// not 0. It returns the context's error if that ends first: a selector may be long, and
// the objects many.
func (q *Query) collect(ctx context.Context, view *informer.View[*codec.Raw], after string, limit int64) ([]*Object, error) {
	s, possible := q.selection()
	if !possible {
		return nil, nil
	}
	s.After = after
	var found []*Object
	visited, seen := 0, &fieldValues{}
	for _, s.Namespace = range q.inKeyOrder(s.Namespace) {
		for o := range view.All(s) {
			if visited++; visited%checkEvery == 0 && ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if !q.everyField() && !q.params.Fields.Matches(attributes{query: q, Object: o, seen: seen}) {
				continue
			}
			if found = append(found, o); limit > 0 && int64(len(found)) >= limit {
				return found, nil
			}
		}
	}
	return found, nil
}

// checkEvery is the number of objects between two checks of the context.
const checkEvery = 64

func (q *Query) everyField() bool { return q.params.Fields == nil || q.params.Fields.Empty() }

// matches reports whether the query selects an object. It is for events, which the
// selectors of all watches evaluate at about the same time; seen caches what they read.
func (q *Query) matches(o *Object, seen *selectorCache) bool {
	if q.params.Namespace != "" && o.GetNamespace() != q.params.Namespace || !q.includes(o.GetNamespace()) {
		return false
	}
	if q.params.Labels != nil && !q.params.Labels.Empty() && !q.params.Labels.Matches(seen.labels(o)) {
		return false
	}
	return q.everyField() || q.params.Fields.Matches(attributes{query: q, Object: o, cache: seen})
}

// includes reports whether the query is limited to namespaces that include this one.
func (q *Query) includes(namespace string) bool {
	if q.within == nil {
		return true
	}
	_, ok := slices.BinarySearch(q.within, namespace)
	return ok
}

// inKeyOrder returns the namespaces to be read in the order of their objects' keys, in
// which a slash follows the namespace. An empty namespace stands for all.
func (q *Query) inKeyOrder(only string) []string {
	if q.within == nil || only != "" {
		return []string{only}
	}
	out := slices.Clone(q.within)
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(a+"/", b+"/") })
	return out
}

// count counts the objects in the query's namespaces after a key, up to limit if limit
// is not 0.
func (q *Query) count(view *informer.View[*codec.Raw], after string, limit int) int {
	n := 0
	for _, namespace := range q.inKeyOrder(q.Namespace()) {
		if namespace == "" && after == "" {
			return view.Len()
		}
		for range view.All(informer.Query{Namespace: namespace, After: after}) {
			if n++; n == limit {
				return n
			}
		}
	}
	return n
}

// namespaces lists the namespaces that have objects, sorted, and at most limit of them;
// more reports whether there are others. It reads one object of each.
func namespaces(view *informer.View[*codec.Raw], limit int) (found []string, more bool) {
	after := ""
	for {
		next := view.List(informer.Query{After: after, Limit: 1})
		if len(next) == 0 || len(found) == limit {
			slices.Sort(found)
			return found, len(next) > 0
		}
		found = append(found, next[0].GetNamespace())
		after = object.Key(next[0].GetNamespace(), afterAll)
	}
}

// afterAll sorts after every name.
const afterAll = "\xff"
