package relations

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cluster"
)

// back adds what names or selects nodes of the tree.
func (a *around) back(namespace string) {
	kinds := map[string]bool{}
	uids := map[string]*Node{}
	for _, n := range a.tree {
		kinds[kindName(n.APIVersion, n.Kind)] = true
		uids[n.UID] = n
	}
	var sources []cluster.Resource
	var wide []*scope // of all namespaces
	asked := map[string]bool{}
	all := slices.Clone(relationTable)
	for _, r := range a.ownEdges {
		all = append(all, r.relation)
	}
	for _, r := range all {
		if asked[r.from] {
			continue
		}
		if r.to == "" || slices.ContainsFunc(strings.Fields(r.to), func(kind string) bool { return kinds[kind] }) {
			asked[r.from] = true
			resource, ok := a.named(r.from)
			if !ok {
				continue
			}
			if r.from == "RoleBinding"+rbac && namespace != "" && kinds["ServiceAccount"] {
				if s := a.everywhere(resource); s != nil {
					wide = append(wide, s)
					continue
				}
			}
			sources = append(sources, resource)
		}
	}
	for _, s := range append(a.open(sources, namespace), wide...) {
		objects, err := s.all()
		if err != nil {
			a.cannotLook(s.resource.String(), err)
			continue
		}
		var failed []Finding // of edges of one's own, the first one for each object
		for _, one := range objects {
			o := NewObject(one.JSON())
			if a.seen[o.UID] != nil {
				continue // of the tree
			}
			var node, about *Node // about is the node of the tree that an Event is about
			unknown := a.targets(o, func(r relation, t target) {
				hit := func(n *Node) {
					if t.found != nil {
						t.found(a, n)
					}
					if node == nil {
						node = a.quiet(o)
					}
					if r.name == "is about" {
						about = n
					}
					a.add(node, 1, found, func(from *Node) Link { return Link{from.String(), r.name, n.String(), t.field} })
				}
				if r.name == "tells of" && about != nil {
					a.leads[about] = append(a.leads[about], node)
				}
				switch {
				case t.labels != nil:
					for _, n := range a.tree {
						if t.having != nil && !t.having(n.object) {
							continue
						}
						if kindName(n.APIVersion, n.Kind) == t.kind && (t.namespace == "" || n.Namespace == t.namespace) && t.labels.Matches(labels.Set(n.object.labels())) {
							hit(n)
						}
					}
				case t.uid != "" && uids[t.uid] != nil:
					hit(uids[t.uid])
				case t.uid == "" && a.inTree[place(t.kind, t.namespace, t.name)] != nil:
					hit(a.inTree[place(t.kind, t.namespace, t.name)])
				}
			})
			if unknown != nil {
				failed = append(failed, unknown[0])
			}
		}
		if failed != nil {
			a.cannotLook(s.resource.String(), fmt.Errorf("of %d of its objects it is not known where they lead: %s", len(failed), failed[0].Message))
		}
	}
}

// everywhere returns a resource in all namespaces, to look for what names an object from
// another one. It returns nil, and says so, if the caller may not list that or if it is too
// much.
func (a *around) everywhere(r cluster.Resource) *scope {
	s := a.open([]cluster.Resource{r}, "")[0]
	if _, err := s.all(); err != nil {
		a.cannotLook(r.String()+" of other namespaces", err)
		return nil
	}
	return s
}
