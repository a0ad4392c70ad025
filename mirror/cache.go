package mirror

import (
	"context"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// cache answers from the informers' memory.
type cache struct{ mirror *Mirror }

// ready returns the informer of the query's resource once it has its first
// list. Where the cluster does not let the mirror have the resource in all
// namespaces, an informer of the one that is asked for has to do.
func (c cache) ready(ctx context.Context, q Query) (*keeper, error) {
	k, err := synced(ctx, q, "")
	if ReasonOf(err) == Forbidden && q.Namespace != "" {
		return synced(ctx, q, q.Namespace)
	}
	return k, err
}

func synced(ctx context.Context, q Query, namespace string) (*keeper, error) {
	k, err := q.member.keep(q.Resource, namespace)
	if err != nil {
		return nil, err
	}
	return k, k.wait(ctx)
}

// pin returns the newest state, to be released.
func (c cache) pin(ctx context.Context, q Query) (*keeper, *informer.View[*codec.Raw], error) {
	for {
		k, err := c.ready(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		view := k.informer.View()
		if view.Synced() {
			return k, view, nil
		}
		view.Release() // emptied this very moment
	}
}

// Get implements [Data].
func (c cache) Get(ctx context.Context, q Query) (*Object, string, error) {
	_, view, err := c.pin(ctx, q)
	if err != nil {
		return nil, "", err
	}
	defer view.Release()
	o, ok := view.Get(q.Namespace, q.Name)
	if !ok {
		return nil, "", missing(q)
	}
	return o, view.ResourceVersion(), nil
}

// List implements [Data].
func (c cache) List(ctx context.Context, q Query, each func(*Object) error) (ListMeta, error) {
	if q.Continue != "" {
		return c.next(ctx, q, each)
	}
	k, err := c.ready(ctx, q)
	if err != nil {
		return ListMeta{}, err
	}
	if q.Labels != nil {
		// Nothing is read here: this has the informer make the indexes that
		// the view is then searched by.
		k.informer.List(informer.Query{Labels: q.Labels, After: afterAll})
	}
	k, view, err := c.pin(ctx, q)
	if err != nil {
		return ListMeta{}, err
	}
	meta := ListMeta{ResourceVersion: view.ResourceVersion()}
	// The objects are collected before they are told, so that a slow caller
	// does not make the store keep what is superseded meanwhile.
	found := q.collect(view, "", q.Limit)
	if q.Limit == 0 || int64(len(found)) <= q.Limit {
		view.Release()
		return meta, tell(found, each)
	}
	at := position{total: -1}
	if !q.selective() {
		at.total = int64(q.count(view))
	}
	at.snapshot = c.mirror.snapshots.hold(k, view)
	found = c.cut(q, at, found, &meta)
	return meta, tell(found, each)
}

// afterAll is behind every key.
const afterAll = "\xff"

// next lists the page that a continue token means.
func (c cache) next(ctx context.Context, q Query, each func(*Object) error) (ListMeta, error) {
	if ctx.Err() != nil {
		return ListMeta{}, context.Cause(ctx)
	}
	at, err := c.mirror.tokens.open(q)
	if err != nil {
		return ListMeta{}, err
	}
	snapshot := c.mirror.snapshots.find(at.snapshot)
	if snapshot == nil || snapshot.keeper.member != q.member {
		return ListMeta{}, errStale
	}
	defer c.mirror.snapshots.done(snapshot)
	meta := ListMeta{ResourceVersion: snapshot.view.ResourceVersion()}
	found := q.collect(snapshot.view, at.after, q.Limit)
	if q.Limit > 0 && int64(len(found)) > q.Limit {
		found = c.cut(q, at, found, &meta)
	}
	return meta, tell(found, each)
}

// cut makes a page of what was found from a position on, which is one object
// more than a page holds, and writes into meta where the next one begins.
func (c cache) cut(q Query, at position, found []*Object, meta *ListMeta) []*Object {
	found = found[:q.Limit]
	at.after = informer.Key(found[len(found)-1])
	at.served += q.Limit
	meta.Remaining = -1
	if at.total >= 0 {
		meta.Remaining = at.total - at.served
	}
	meta.Continue = c.mirror.tokens.seal(q, at)
	return found
}

func tell(found []*Object, each func(*Object) error) error {
	for _, o := range found {
		if err := each(o); err != nil {
			return err
		}
	}
	return nil
}

// collect returns what matches behind a key: everything, or with a limit one
// more than that, to tell whether another page follows.
func (q *Query) collect(view *informer.View[*codec.Raw], after string, limit int64) []*Object {
	scope, possible := q.scope()
	if !possible {
		return nil
	}
	scope.After = after
	var found []*Object
	full := func() bool { return limit > 0 && int64(len(found)) > limit }
	add := func(scope informer.Query) {
		for o := range view.All(scope) {
			if !q.matchFields(o) {
				continue
			}
			if found = append(found, o); full() {
				break
			}
		}
	}
	if q.Namespaces == nil || scope.Namespace != "" {
		add(scope)
		return found
	}
	for _, namespace := range q.inKeyOrder() {
		scope.Namespace = namespace
		if add(scope); full() {
			break
		}
	}
	return found
}

// count is the number of objects in the query's namespaces.
func (q *Query) count(view *informer.View[*codec.Raw]) int {
	n := 0
	if q.Namespaces != nil {
		for _, namespace := range q.Namespaces {
			one := Query{Target: q.Target, Namespace: namespace}
			n += one.count(view)
		}
		return n
	}
	if q.Namespace == "" {
		return view.Len()
	}
	for range view.All(informer.Query{Namespace: q.Namespace}) {
		n++
	}
	return n
}

// selective says that the query selects by more than the namespace.
func (q *Query) selective() bool {
	return q.Labels != nil && !q.Labels.Empty() || q.Fields != nil && !q.Fields.Empty()
}

// scope is what the informer can select by itself. A field selector that asks
// for one namespace is as good as a namespace. possible says that anything can
// match at all.
func (q *Query) scope() (scope informer.Query, possible bool) {
	scope = informer.Query{Namespace: q.Namespace, Labels: q.Labels}
	if q.Fields == nil {
		return scope, true
	}
	if ns, ok := q.Fields.RequiresExactMatch("metadata.namespace"); ok && ns != "" {
		if scope.Namespace != "" && scope.Namespace != ns {
			return scope, false
		}
		scope.Namespace = ns
		return scope, q.among(ns)
	}
	return scope, true
}

// matches says whether an object is among those asked for. It is for what happens
// to objects, which is shown to the selectors of all watches.
func (q *Query) matches(o *Object) bool {
	if q.Namespace != "" && o.GetNamespace() != q.Namespace {
		return false
	}
	if q.Namespaces != nil && !q.among(o.GetNamespace()) {
		return false
	}
	if q.Labels != nil && !q.Labels.Empty() && !q.Labels.Matches(q.member.looks.labels(o)) {
		return false
	}
	return q.Fields == nil || q.Fields.Empty() || q.Fields.Matches(attributes{q, o, &q.member.looks})
}

func (q *Query) matchFields(o *Object) bool {
	return q.Fields == nil || q.Fields.Empty() || q.Fields.Matches(attributes{q, o, nil})
}
