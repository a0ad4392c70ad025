package relations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// Bounds of a walk.
const (
	maxHops    = 5     // from the object, up and down
	maxNodes   = 250   // of the tree
	maxReviews = 50    // of single objects, where the caller may not list
	maxScan    = 2_000 // objects of a resource to look at without an index
)

// Reader walks from object to object.
type Reader struct {
	// Reads reads the objects.
	Reads *read.Reader
	// Authorize returns an error that IsForbidden of apimachinery accepts if the caller
	// may not do what the query says. It must be safe for concurrent use. nil allows
	// everything.
	Authorize func(context.Context, *read.Query) error
	// Edges are relations of one's own, beside those that are built in. nil for none.
	Edges *Edges
}

// Options of a walk.
type Options struct {
	// Source and At are those of the object's query, and of all that are read after it.
	Source read.Source
	At     *read.Moment
	// Neighbours adds the objects that those of the tree name or select, and that name
	// or select them.
	Neighbours bool
}

// Node is an object of a tree.
type Node struct {
	Ref
	// Hops is the number of edges from the object that was asked for, negative for its
	// owners. For a neighbour it is the number of edges from the tree: 1 or 2.
	Hops    int        `json:"hops"`
	State   string     `json:"state,omitempty"`
	Created *time.Time `json:"created,omitempty"`
	Wrong   []Finding  `json:"wrong,omitempty"`
	// Unknown is what could not be found out about the object, such as an edge of one's
	// own whose expression failed.
	Unknown  []Finding `json:"unknown,omitempty"`
	Children []*Node   `json:"children,omitempty"`
	// Hidden is the number of children that the caller may not see, LeftOut of those
	// beyond the bounds of a tree.
	Hidden  int `json:"hidden,omitempty"`
	LeftOut int `json:"leftOut,omitempty"`

	object Object
	lacks  bool // an object that it names does not exist
}

// Unlooked is a resource that could not be looked at.
type Unlooked struct {
	Resource string `json:"resource"`
	Why      string `json:"why"`
}

// Cause is an object on the way from the object that was asked for to the likely cause of
// what is wrong.
type Cause struct {
	Ref
	Finding
}

// Tree is what belongs to an object.
type Tree struct {
	// Owners are the object's owners and theirs, from the top.
	Owners []*Node `json:"owners,omitempty"`
	// HiddenOwners is the number of owners that the caller may not see.
	HiddenOwners int `json:"hiddenOwners,omitempty"`
	// Object is the object that was asked for, with what it owns.
	Object *Node `json:"object"`
	// Cause leads to what is likely to be wrong, empty if no rule finds anything.
	Cause []Cause `json:"cause,omitempty"`
	// Neighbours are the objects that are related otherwise.
	Neighbours *Neighbours `json:"neighbours,omitempty"`
	// LookedAt are the resources that were searched for owned objects.
	LookedAt []string   `json:"lookedAt"`
	Unlooked []Unlooked `json:"notLookedAt,omitempty"`
}

// LikelyCause is the cause in one line: the way to it, what is wrong there, and the field that says so. It is
// empty if no rule finds anything.
func (t *Tree) LikelyCause() string {
	if len(t.Cause) == 0 {
		return ""
	}
	var way []string
	for _, c := range t.Cause {
		way = append(way, c.Ref.String())
	}
	last := t.Cause[len(t.Cause)-1]
	return fmt.Sprintf("%s: %s (%s)", strings.Join(way, " → "), last.Message, last.Field)
}

// walk is one walk. Only open runs in several goroutines.
type walk struct {
	*Reader
	reads    *read.Reader
	ctx      context.Context
	cluster  *mirror.Cluster
	opts     Options
	now      time.Time
	scopes   map[scopeKey]*scope
	kinds    map[schema.GroupVersionKind]*kindOf
	unlooked map[string]string
	seen     map[string]*Node // by uid
	reviews  int
}

type scopeKey struct {
	schema.GroupVersionResource
	namespace string
}

type kindOf struct {
	resource cluster.Resource
	err      error
}

// Tree returns what belongs to an object that was read by q. The caller may see it.
func (r *Reader) Tree(ctx context.Context, q *read.Query, root *read.Object, now time.Time, opts Options) (*Tree, error) {
	limited, cancel := context.WithTimeoutCause(ctx, patience, errTooLate)
	defer cancel()
	p := q.Params()
	opts.Source, opts.At = p.Source, p.At
	w := &walk{
		Reader: r, reads: r.Reads, ctx: limited, cluster: p.Cluster, opts: opts, now: now,
		scopes: map[scopeKey]*scope{}, kinds: map[schema.GroupVersionKind]*kindOf{},
		unlooked: map[string]string{}, seen: map[string]*Node{},
	}
	defer func() {
		for _, s := range w.scopes {
			s.close()
		}
	}()
	node := w.node(NewObject(root.JSON()), 0)
	out := &Tree{Object: node}
	w.up(out, node)
	out.LookedAt = w.down(node, q.Resource())
	var leads map[*Node][]*Node
	if opts.Neighbours {
		out.Neighbours, leads = w.neighbours(node)
	}
	out.Cause = causeOf(node, leads)
	for resource, reason := range w.unlooked {
		out.Unlooked = append(out.Unlooked, Unlooked{resource, reason})
	}
	slices.SortFunc(out.Unlooked, func(a, b Unlooked) int { return cmp.Compare(a.Resource, b.Resource) })
	return out, ctx.Err()
}

func (w *walk) authorize(q *read.Query) error {
	if w.Authorize == nil {
		return nil
	}
	return w.Authorize(w.ctx, q)
}

func (w *walk) cannotLook(resource string, err error) {
	if w.unlooked[resource] == "" {
		w.unlooked[resource] = why(w.ctx, err)
	}
}

func (w *walk) node(o Object, hops int) *Node {
	n := &Node{Ref: o.Ref, State: o.State(w.now), Wrong: o.Wrong(w.now), object: o, Hops: hops}
	if at := o.created(); !at.IsZero() {
		n.Created = &at
	}
	w.seen[o.UID] = n
	return n
}

// open returns the open scopes of resources in a namespace. Those that are not open yet
// are opened at the same time: each may have to wait for its first list.
func (w *walk) open(resources []cluster.Resource, namespace string) []*scope {
	var out []*scope
	var opening sync.WaitGroup
	for _, r := range resources {
		key := scopeKey{r.GVR(), namespace}
		if !r.Namespaced {
			key.namespace = ""
		}
		s := w.scopes[key]
		if s == nil {
			s = w.newScope(r, namespace)
			w.scopes[key] = s
			opening.Go(s.open)
		}
		out = append(out, s)
	}
	opening.Wait()
	return out
}

// kind finds the resource of a kind.
func (w *walk) kind(apiVersion, kind string) (cluster.Resource, error) {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return cluster.Resource{}, err
	}
	gvk := gv.WithKind(kind)
	known := w.kinds[gvk]
	if known == nil {
		known = &kindOf{}
		known.resource, known.err = w.cluster.ResourceForKind(w.ctx, gvk)
		w.kinds[gvk] = known
	}
	return known.resource, known.err
}

// up adds the owners of a node and theirs.
func (w *walk) up(out *Tree, node *Node) {
	level := []*Node{node}
	for hop := 1; hop <= maxHops && len(level) > 0; hop++ {
		var above []*Node
		for _, n := range level {
			for _, owner := range n.object.Owners() {
				if w.seen[owner.UID] != nil {
					continue
				}
				r, err := w.kind(owner.APIVersion, owner.Kind)
				if err != nil {
					w.cannotLook(owner.Kind+" "+owner.APIVersion, err)
					continue
				}
				namespace := n.Namespace
				if !r.Namespaced {
					namespace = ""
				}
				o, what := w.newScope(r, namespace).seeAlone(namespace, owner.Name)
				switch {
				case what == hidden:
					out.HiddenOwners++
				case what == missing || what == found && o.UID != owner.UID:
					owner.Namespace = namespace
					gone := &Node{Ref: owner, Hops: -hop, Wrong: []Finding{{"the owner does not exist any more: the garbage collector deletes what it owned", "metadata.ownerReferences"}}}
					w.seen[owner.UID] = gone
					out.Owners = append(out.Owners, gone)
				case what == found:
					one := w.node(o, -hop)
					above = append(above, one)
					out.Owners = append(out.Owners, one)
				}
			}
		}
		level = above
	}
	slices.Reverse(out.Owners)
}

// seeAlone is see for a scope that is not opened: one object is to be read.
func (s *scope) seeAlone(namespace, name string) (Object, result) {
	if s.err != nil {
		s.walk.cannotLook(s.resource.String(), s.err)
		return Object{}, unlooked
	}
	s.reviewed = true // not allowed to list, as far as it is known
	return s.see(namespace, name)
}

// down adds what a node owns, level by level, so that what is left out is the farthest.
// It returns the resources that were looked at.
func (w *walk) down(root *Node, own cluster.Resource) (looked []string) {
	scopes := w.open(w.candidates(root, own), root.Namespace)
	for _, s := range scopes {
		if s.err != nil {
			w.cannotLook(s.resource.String(), s.err)
		} else {
			looked = append(looked, s.resource.String())
		}
	}
	slices.Sort(looked)
	nodes := 1
	for level := []*Node{root}; len(level) > 0; {
		var next []*Node
		for _, n := range level {
			for _, s := range scopes {
				if s.err == nil && n.UID != "" {
					w.children(n, s, &nodes)
				}
			}
			slices.SortStableFunc(n.Children, func(a, b *Node) int {
				return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
			})
			next = append(next, n.Children...)
		}
		level = next
	}
	return slices.Compact(looked)
}

// children adds the objects of a scope that a node owns.
func (w *walk) children(n *Node, s *scope, nodes *int) {
	for _, o := range s.ownedBy(types.UID(n.UID)) {
		if w.seen[string(o.GetUID())] != nil {
			continue // it has several owners, or its resource several names
		}
		if n.Hops == maxHops || *nodes == maxNodes {
			n.LeftOut++
			continue
		}
		child, what := s.see(o.GetNamespace(), o.GetName())
		switch {
		case what == hidden:
			n.Hidden++
		case what == unlooked:
			n.LeftOut++
		case what == found && w.seen[child.UID] == nil:
			*nodes++
			n.Children = append(n.Children, w.node(child, n.Hops+1))
		}
	}
}

// usual are the resources that own and are owned in most clusters.
var usual = []schema.GroupVersionResource{
	{Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "persistentvolumeclaims"},
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "configmaps"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "apps", Version: "v1", Resource: "replicasets"},
	{Group: "apps", Version: "v1", Resource: "statefulsets"},
	{Group: "apps", Version: "v1", Resource: "daemonsets"},
	{Group: "apps", Version: "v1", Resource: "controllerrevisions"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Group: "batch", Version: "v1", Resource: "cronjobs"},
	{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
}

// candidates are the resources that may have objects that the root or what it owns owns:
// the usual ones, those that are mirrored anyway, and those of the root's own group.
func (w *walk) candidates(root *Node, own cluster.Resource) []cluster.Resource {
	var out []cluster.Resource
	have := map[schema.GroupResource]bool{{Resource: "events"}: true, {Group: "events.k8s.io", Resource: "events"}: true} // which nobody owns
	add := func(r cluster.Resource) {
		if have[r.GVR().GroupResource()] || !r.Can("list") || !r.Can("watch") || root.Namespace != "" && !r.Namespaced {
			return // a namespaced object owns nothing outside of its namespace
		}
		have[r.GVR().GroupResource()] = true
		out = append(out, r)
	}
	for _, gvr := range usual {
		if r, err := w.cluster.ResourceFor(w.ctx, gvr); err == nil {
			add(r)
		} else if reason := mirror.ReasonOf(err); reason != mirror.UnknownResource {
			w.cannotLook(gvr.GroupResource().String(), err)
		}
	}
	for _, r := range w.cluster.Mirrored(root.Namespace) {
		add(r)
	}
	if all, err := w.cluster.Resources(w.ctx); err == nil || len(all) > 0 {
		for _, r := range all {
			if r.Group == own.Group && r.Group != "" && r.Version == own.Version {
				add(r)
			}
		}
	}
	return out
}

// Shown lists the kinds of all objects that the tree shows, each with a namespace, sorted.
func (t *Tree) Shown() []string {
	shown := []string{}
	add := func(n *Node) {
		shown = append(shown, strings.TrimPrefix(n.Namespace+"/"+kindName(n.APIVersion, n.Kind), "/"))
	}
	var below func(n *Node)
	below = func(n *Node) {
		add(n)
		for _, child := range n.Children {
			below(child)
		}
	}
	for _, n := range t.Owners {
		add(n)
	}
	below(t.Object)
	if t.Neighbours != nil {
		for _, n := range t.Neighbours.Objects {
			add(n.Node)
		}
	}
	slices.Sort(shown)
	return slices.Compact(shown)
}
