package relations

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

const (
	maxNeighbours = 100
	maxLinks      = 5 // that are told of one neighbour
)

// Neighbours are objects that are related to those of a tree, but not by ownership.
type Neighbours struct {
	Objects []*Neighbour `json:"objects"`
	// Hidden is the number of those that the caller may not see, LeftOut of those beyond
	// the bound.
	Hidden  int `json:"hidden,omitempty"`
	LeftOut int `json:"leftOut,omitempty"`
}

// Neighbour is one of them.
type Neighbour struct {
	*Node
	// Missing says that the object is named and does not exist.
	Missing bool `json:"missing,omitempty"`
	// Links say how it is related, and MoreLinks how many others there are.
	Links     []Link `json:"links"`
	MoreLinks int    `json:"moreLinks,omitempty"`
}

// Link is an edge.
type Link struct {
	From     string `json:"from"` // kind/name
	Relation string `json:"relation"`
	To       string `json:"to"`
	// Field is the field of From that says so.
	Field string `json:"field"`
}

// around collects the neighbours of a tree.
type around struct {
	*walk
	out    *Neighbours
	tree   []*Node
	inTree map[string]*Node      // by place
	known  map[string]*Neighbour // by place
	gone   map[string]result     // hidden and unlooked ones, by place

	resources map[string]cluster.Resource // by the kind that relations name

	leads    map[*Node][]*Node
	ownEdges []ownRelation
	budget   uint64 // of the expressions of all of them
}

// place identifies an object by its name.
func place(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func (n *Node) place() string { return place(kindName(n.APIVersion, n.Kind), n.Namespace, n.Name) }

// neighbours returns the neighbours of the tree below a node: at one hop those that are
// named or selected, and those that name or select; at two hops those that the former
// name or select. It also returns the neighbours that may explain what is wrong with an
// object.
func (w *walk) neighbours(root *Node) (*Neighbours, map[*Node][]*Node) {
	a := &around{walk: w, out: &Neighbours{Objects: []*Neighbour{}}, known: map[string]*Neighbour{}, inTree: map[string]*Node{}, gone: map[string]result{}, resources: map[string]cluster.Resource{}, leads: map[*Node][]*Node{}, budget: maxTotalCost}
	a.ownEdges = a.own(w.Edges)
	var add func(n *Node)
	add = func(n *Node) {
		a.tree = append(a.tree, n)
		a.inTree[n.place()] = n
		for _, child := range n.Children {
			add(child)
		}
	}
	add(root)
	for _, n := range a.tree {
		a.forth(n, 1)
	}
	a.back(root.Namespace)
	for _, n := range slices.Clone(a.out.Objects) {
		if n.Node.object.Kind != "" {
			a.forth(n.Node, 2)
		}
	}
	slices.SortStableFunc(a.out.Objects, func(a, b *Neighbour) int {
		event := func(n *Neighbour) int { // there may be many, and they belong to the past
			if n.Kind == "Event" {
				return 1
			}
			return 0
		}
		return cmp.Or(event(a)-event(b), cmp.Compare(a.Hops, b.Hops), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return a.out, a.leads
}

// forth adds what a node names or selects.
func (a *around) forth(n *Node, hops int) {
	n.Unknown = a.targets(n.object, func(r relation, t target) {
		link := func(to *Node) Link { return Link{n.String(), r.name, to.String(), t.field} }
		if t.kind == image || t.kind == user || t.kind == group {
			a.add(&Node{Ref: Ref{Kind: t.kind, Name: t.name}}, hops, found, link)
			return
		}
		resource, ok := a.named(t.kind)
		if !ok {
			return
		}
		relate := func(to *Node) {
			if t.found != nil {
				t.found(a, to)
			}
			if always, may := explains[r.name]; may && to != n && (always || len(n.Wrong) > 0) {
				a.leads[n] = append(a.leads[n], to)
			}
		}
		if t.labels != nil {
			selected := a.selected(resource, t.namespace, t.labels)
			for _, one := range selected {
				if o := NewObject(one.JSON()); t.having == nil || t.having(o) {
					relate(a.add(a.quiet(o), hops, found, link))
				}
			}
			if r.from == "Service" && len(selected) == 0 {
				if difference := a.similar(n.object, resource); difference != "" {
					n.Wrong = append(n.Wrong, Finding{shortened(difference, maxMessage), t.field})
				}
			}
			return
		}
		if !resource.Namespaced {
			t.namespace = ""
		}
		at := place(kindName(resource.GroupVersion().String(), resource.Kind), t.namespace, t.name)
		lacks := func() {
			if !t.optional {
				n.lacks = true
				n.Wrong = append(n.Wrong, Finding{fmt.Sprintf("%s %q does not exist", t.kind, t.name), t.field})
			}
		}
		if known := a.known[at]; known != nil {
			if a.add(known.Node, hops, found, link); known.Missing {
				lacks()
			} else {
				relate(known.Node)
			}
			return
		}
		if own := a.inTree[at]; own != nil {
			relate(own)
			return
		}
		if a.gone[at] != found {
			return
		}
		o, what := a.see(resource, t.namespace, t.name)
		switch what {
		case found:
			relate(a.add(a.quiet(o), hops, found, link))
		case missing:
			gone := &Node{Ref: Ref{APIVersion: resource.GroupVersion().String(), Kind: resource.Kind, Namespace: t.namespace, Name: t.name}}
			a.add(gone, hops, missing, link)
			lacks()
		case hidden:
			a.out.Hidden++
			a.gone[at] = hidden
		default:
			a.gone[at] = what
		}
	})
}

// quiet returns the node of a neighbour, which is not one of the tree.
func (a *around) quiet(o Object) *Node {
	n := &Node{Ref: o.Ref, State: o.State(a.now), Wrong: o.Wrong(a.now), object: o}
	if o.Kind == "Event" {
		n.State = strings.TrimSpace(o.str("type") + " " + o.str("reason"))
	}
	if at := o.created(); !at.IsZero() {
		n.Created = &at
	}
	return n
}

// add adds a neighbour, or another link to one. It returns the node of the tree or of the
// neighbour.
func (a *around) add(n *Node, hops int, what result, link func(*Node) Link) *Node {
	at := n.place()
	if own := a.seen[n.UID]; n.UID != "" && own != nil {
		return own
	}
	if own := a.inTree[at]; own != nil {
		return own
	}
	known := a.known[at]
	if known == nil {
		if len(a.out.Objects) == maxNeighbours {
			a.out.LeftOut++
			return n
		}
		known = &Neighbour{Node: n, Missing: what == missing}
		n.Hops = hops // edges to the tree
		a.known[at] = known
		a.out.Objects = append(a.out.Objects, known)
	}
	l := link(n)
	switch {
	case slices.Contains(known.Links, l):
	case len(known.Links) == maxLinks:
		known.MoreLinks++
	default:
		known.Links = append(known.Links, l)
	}
	return known.Node
}

// named finds the resource of a kind that a relation names.
func (a *around) named(kind string) (cluster.Resource, bool) {
	if r, ok := a.resources[kind]; ok {
		return r, true
	}
	r, err := a.cluster.Resolve(a.ctx, kind)
	if err == nil {
		a.resources[kind] = r
		return r, true
	}
	if mirror.ReasonOf(err) != mirror.UnknownResource { // a kind that is not installed has no objects
		a.cannotLook(kind, err)
	}
	return r, false
}

// selected returns the objects of a namespace with some labels.
func (a *around) selected(r cluster.Resource, namespace string, by labels.Selector) []*read.Object {
	p := read.Params{Cluster: a.cluster, Resource: r.GVR(), Verb: read.List, Namespace: namespace, Labels: by, Source: a.opts.Source, At: a.opts.At}
	q, err := read.NewQuery(p)
	if err == nil {
		err = q.Bind(r)
	}
	if err == nil {
		err = a.authorize(q)
	}
	var out []*read.Object
	if err == nil {
		_, err = a.reads.List(a.ctx, q, func(o *read.Object) error {
			if len(out) == maxScan {
				return errTooMany
			}
			out = append(out, o)
			return nil
		})
	}
	if err != nil {
		a.cannotLook(r.String(), err)
	}
	return out
}

// see returns one object that is named.
func (a *around) see(r cluster.Resource, namespace, name string) (Object, result) {
	s := a.scopes[scopeKey{r.GVR(), namespace}]
	if s == nil && a.opts.Source == read.Cache && a.opts.At == nil {
		s = a.open([]cluster.Resource{r}, namespace)[0]
	}
	switch {
	case s == nil || errors.Is(s.err, errMayNotList):
		return a.newScope(r, namespace).seeAlone(namespace, name)
	case s.err != nil:
		a.cannotLook(r.String(), s.err)
		return Object{}, unlooked
	}
	return s.see(namespace, name)
}
