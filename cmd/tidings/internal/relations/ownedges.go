package relations

import (
	"fmt"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// ownRelation is an edge of one's own in one cluster: its ends are kinds of it.
type ownRelation struct {
	relation
	edge
	namespaced bool // the objects that it leads to
}

// own returns the edges of one's own whose resources the cluster has.
func (a *around) own(edges *Edges) (out []ownRelation) {
	if edges == nil {
		return nil
	}
	for _, e := range edges.edges {
		var kinds [2]string
		known, namespaced := true, false
		for i, name := range []string{e.from, e.to} {
			r, err := a.cluster.Resolve(a.ctx, name)
			if err != nil && mirror.ReasonOf(err) != mirror.UnknownResource {
				a.cannotLook(name, err)
			}
			known = known && err == nil
			kinds[i], namespaced = kindName(r.GroupVersion().String(), r.Kind), r.Namespaced
		}
		if known {
			out = append(out, ownRelation{relation{from: kinds[0], name: e.name, to: kinds[1]}, e, namespaced})
		}
	}
	return out
}

// targets yields what an object names or selects. It returns what could not be found out.
func (a *around) targets(o Object, yield func(relation, target)) (unknown []Finding) {
	o.targets(yield)
	kind := kindName(o.APIVersion, o.Kind)
	var self map[string]any
	for _, r := range a.ownEdges {
		if r.relation.from != kind {
			continue
		}
		failed := func(err error) {
			message := fmt.Sprintf("edge %q: %v", r.relation.name, err)
			unknown = append(unknown, Finding{shortened(message, maxMessage), shortened(r.compiled.text, maxMessage)})
		}
		if self == nil {
			var err error
			if self, err = o.self(); err != nil {
				failed(err)
				return unknown
			}
		}
		names, selector, err := r.compiled.evaluate(a.ctx, self, &a.budget)
		if err != nil {
			failed(err)
		}
		t := target{kind: r.relation.to, field: shortened(r.compiled.text, maxMessage), optional: r.optional}
		if selector != nil {
			if t.labels = selector; r.namespaced {
				t.namespace = o.Namespace
			}
			yield(r.relation, t)
			continue
		}
		for _, given := range names {
			if given == "" {
				continue // it names nothing
			}
			if t.namespace, t.name, err = splitName(given, o.Namespace, r.namespaced); err != nil {
				failed(err)
			} else {
				yield(r.relation, t)
			}
		}
	}
	return unknown
}
