package read

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/apipath"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/mirror"
)

// Object is what is read: the JSON of one object as the API server sent it, and
// what is asked of it most. It is shared and must not be modified.
type Object = codec.Raw

// Verb is what a query does.
type Verb string

// The verbs, as the Kubernetes API calls them.
const (
	Get   Verb = "get"
	List  Verb = "list"
	Watch Verb = "watch"
)

// Source says where a query is answered from.
type Source string

// The sources. The empty one means Cache.
const (
	Cache Source = "cache" // the mirror's memory
	Live  Source = "live"  // the cluster's API server, at the time of asking
)

// Ask is what a request asks for, as the door has read it. [NewQuery] makes a [Query]
// of it.
type Ask struct {
	Cluster  *mirror.Cluster
	Resource schema.GroupVersionResource
	Verb     Verb
	// Namespace limits the query to one. Empty means all of them, or that the
	// resource has none.
	Namespace string
	// Name of the one object wanted. A list or a watch with a name selects it.
	Name string
	// Labels and Fields, if not nil, select among the objects.
	Labels labels.Selector
	Fields fields.Selector
	Source Source
	// Limit is the number of objects on a page of a list, 0: all.
	Limit int64
	// Continue is the token of the page before, for the same query.
	Continue string
	// Legacy says that it is a watch in its older form, by the path: rights to such
	// do not depend on selectors.
	Legacy bool
}

// Query is one read, and the only form in which a read is known behind the door:
// it is authorized by what [Query.Ask] says, and that very value is what is read
// and what a request to the API server is built from. It does not change, but by
// [Query.Within], which makes it narrower.
type Query struct {
	ask   Ask
	bound bool
	// resource is what the cluster knows of Ask.Resource, once it is bound.
	resource cluster.Resource
	// within are the only namespaces to be read, sorted, if not nil.
	within []string
	custom map[string]selectable // the fields a CustomResourceDefinition adds, once they are known
}

// NewQuery makes a query. Errors are [*mirror.Error]s of reason Invalid. Names are held
// to the API server's own rule (IsPathSegmentName in k8s.io/apimachinery), for its
// storage and for its paths. Namespaces that there can be none of are, as there,
// empty ones.
func NewQuery(ask Ask) (*Query, error) {
	if ask.Cluster == nil || ask.Resource.Resource == "" || ask.Resource.Version == "" {
		return nil, mirror.Invalidf("a query without a resource of a cluster")
	}
	if ask.Verb == Get && ask.Name == "" {
		return nil, mirror.Invalidf("get one of %s: no name is given", ask.Resource.Resource)
	}
	if wrong := content.IsPathSegmentName(ask.Name); len(wrong) > 0 && ask.Verb == Get { // a list or watch has it in a selector only
		return nil, mirror.Invalidf("%.80q cannot be the name of an object: %s", ask.Name, strings.Join(wrong, "; "))
	}
	if ask.Namespace == "." || ask.Namespace == ".." || strings.Contains(ask.Namespace, "/") {
		return nil, mirror.Invalidf("%.80q cannot be the name of a namespace", ask.Namespace)
	}
	switch ask.Source {
	case "":
		ask.Source = Cache
	case Cache, Live:
	default:
		return nil, &mirror.Error{Reason: mirror.Invalid, Message: fmt.Sprintf("there is no source %.80q", ask.Source), Exists: []string{string(Cache), string(Live)}}
	}
	switch {
	case ask.Verb != List && (ask.Limit != 0 || ask.Continue != ""):
		return nil, mirror.Invalidf("a %s has no pages: leave out limit and continue", ask.Verb)
	case ask.Limit < 0:
		return nil, mirror.Invalidf("a limit of %d makes no sense", ask.Limit)
	}
	if ask.Verb != Get && ask.Name != "" {
		one := fields.OneTermEqualSelector("metadata.name", ask.Name)
		if ask.Fields != nil && !ask.Fields.Empty() {
			one = fields.AndSelectors(ask.Fields, one)
		}
		ask.Fields = one
	} else if ask.Verb != Get && ask.Fields != nil && !ask.Legacy {
		if name, ok := ask.Fields.RequiresExactMatch("metadata.name"); ok && name != "" && len(content.IsPathSegmentName(name)) == 0 {
			ask.Name = name
		}
	}
	return &Query{ask: ask}, nil
}

// Ask is what the query asks for. For a list or watch that selects one name, that
// is Name, and Fields has it, too.
func (q *Query) Ask() Ask { return q.ask }

// Resource is what the cluster knows of the query's resource; see [Query.Bind].
func (q *Query) Resource() cluster.Resource { return q.resource }

func (q *Query) String() string {
	return fmt.Sprintf("%s of cluster %s", q.resource, q.ask.Cluster.Name())
}

// Bind gives the query what its cluster knows of its resource, and sees that the query
// makes sense for it: that it has a namespace where it takes one, and none where it
// takes none. A query is bound before it is read.
func (q *Query) Bind(r cluster.Resource) error {
	if r.GVR() != q.ask.Resource {
		return mirror.Invalidf("a query about %s is not one about %s", q.ask.Resource.Resource, r)
	}
	q.resource, q.bound = r, true
	switch {
	case !r.Namespaced && q.ask.Namespace != "":
		return mirror.Invalidf("%s are not namespaced: ask without a namespace", r)
	case r.Namespaced && q.ask.Namespace == "" && q.ask.Verb == Get:
		return mirror.Invalidf("%s are namespaced: %q is sought in which namespace?", r, q.ask.Name)
	}
	return nil
}

// offered says whether the query's resource can be read as it is asked for.
func (q *Query) offered(ctx context.Context) error {
	switch r := q.resource; {
	case !q.bound:
		return mirror.Invalidf("a query that is not bound to a resource")
	case q.ask.Source == Live:
		if !r.Can(string(q.ask.Verb)) {
			return &mirror.Error{Reason: mirror.NotOffered, Message: fmt.Sprintf("the verb %s is not offered for %s", q.ask.Verb, q)}
		}
	case !r.Can("list") || !r.Can("watch"):
		return &mirror.Error{Reason: mirror.NotOffered, Message: fmt.Sprintf("%s cannot be both listed and watched there, so they are not mirrored; ask with source=live", q)}
	}
	return q.checkFields(ctx)
}

// Within returns the query limited to some namespaces, which are sorted; none of
// them means no objects. It is for lists and watches of all namespaces, of the cache.
func (q *Query) Within(namespaces []string) (*Query, error) {
	switch {
	case !q.resource.Namespaced:
		return nil, mirror.Invalidf("%s are not namespaced: ask without namespaces", q.resource)
	case q.ask.Namespace != "" || q.ask.Verb == Get || q.ask.Source == Live:
		return nil, mirror.Invalidf("a query limited to several namespaces is a list or a watch of the cache, of all namespaces")
	case !slices.IsSorted(namespaces):
		return nil, mirror.Invalidf("the namespaces are not sorted")
	}
	out := *q
	out.within = namespaces
	return &out, nil
}

// Namespace is the only one that can have objects of the query: the one asked for,
// or the one that its field selector asks for. Empty: all can.
func (q *Query) Namespace() string {
	if q.ask.Namespace == "" && q.ask.Fields != nil && q.resource.Namespaced {
		namespace, _ := q.ask.Fields.RequiresExactMatch("metadata.namespace")
		return namespace
	}
	return q.ask.Namespace
}

// Everything says that the query selects by no more than the namespace.
func (q *Query) Everything() bool {
	return (q.ask.Labels == nil || q.ask.Labels.Empty()) && (q.ask.Fields == nil || q.ask.Fields.Empty())
}

// nowhere says that there can be no such namespace: nothing is asked of the API server
// about it.
func (q *Query) nowhere() bool {
	return q.ask.Namespace != "" && len(validation.IsDNS1123Label(q.ask.Namespace)) > 0
}

// path names what is read, in the API of the cluster.
func (q *Query) path() apipath.Path {
	r := q.ask.Resource
	out := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: q.ask.Namespace}
	if q.ask.Verb == Get {
		out.Name = q.ask.Name
	}
	return out
}

// missing is the error of an object that is not there.
func (q *Query) missing() error {
	where := ""
	if q.ask.Namespace != "" {
		where = " in namespace " + q.ask.Namespace
	}
	return &mirror.Error{Reason: mirror.NotFound, Message: fmt.Sprintf("there is no %q among the %s%s of cluster %s", q.ask.Name, q.resource, where, q.ask.Cluster.Name())}
}
