package mirror

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/informer"
)

// Namespaces lists the namespaces that hold objects of the query's resource at
// the moment, sorted, and most of them at most; more says that there are others.
// It waits for the first list as [Mirror.List] does. It looks at one object of
// each namespace.
func (m *Mirror) Namespaces(ctx context.Context, q Query, most int) (namespaces []string, more bool, err error) {
	d, err := m.data(ctx, &q)
	if err != nil {
		return nil, false, err
	}
	c, ok := d.(cache)
	switch {
	case !ok:
		return nil, false, invalid("the namespaces of %s are known from the cache only", q.Target)
	case !q.Resource.Namespaced:
		return nil, false, invalid("%s are not namespaced", q.Resource)
	}
	_, view, err := c.pin(ctx, q)
	if err != nil {
		return nil, false, err
	}
	defer view.Release()
	for after, found := "", true; found; {
		found = false
		for o := range view.All(informer.Query{After: after}) {
			if len(namespaces) == most {
				more = true
				break
			}
			namespaces, found = append(namespaces, o.GetNamespace()), true
			after = o.GetNamespace() + "/" + afterAll
			break
		}
	}
	slices.Sort(namespaces)
	return namespaces, more, nil
}

// among says that a namespace is one of those the query is limited to.
func (q *Query) among(namespace string) bool {
	if q.Namespaces == nil {
		return true
	}
	_, ok := slices.BinarySearch(q.Namespaces, namespace)
	return ok
}

// inKeyOrder are the namespaces that a query is limited to in the order of the
// keys of their objects, which ends each with a slash.
func (q *Query) inKeyOrder() []string {
	out := slices.Clone(q.Namespaces)
	slices.SortFunc(out, func(a, b string) int { return cmp.Compare(a+"/", b+"/") })
	return out
}

// list is how a set of namespaces is written.
func list(namespaces []string) string {
	if namespaces == nil {
		return "*"
	}
	return strings.Join(namespaces, ",")
}
