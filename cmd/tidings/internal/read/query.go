package read

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/apipath"
	"github.com/tidings-io/tidings/internal/codec"
)

// Object is an object as the API server sent it, in JSON, with accessors for the most
// used metadata. It is shared and must not be modified.
type Object = codec.Raw

// Verb is the verb of a query.
type Verb string

// The verbs, with their names in the Kubernetes API.
const (
	Get   Verb = "get"
	List  Verb = "list"
	Watch Verb = "watch"
)

// Source says where a query reads from.
type Source string

// The sources. The empty one means Cache.
const (
	Cache Source = "cache" // the mirror's memory
	Live  Source = "live"  // the cluster's API server, at the time of the request
)

// Params are the parameters of a query, as parsed from a request.
type Params struct {
	Cluster  *mirror.Cluster
	Resource schema.GroupVersionResource
	Verb     Verb
	// Namespace limits the query to one namespace. Empty means all namespaces, or a
	// resource that is not namespaced.
	Namespace string
	// Name of the object. A list or a watch with a name selects that object.
	Name string
	// Labels and Fields, if not nil, select objects.
	Labels labels.Selector
	Fields fields.Selector
	Source Source
	// Limit is the number of objects on a page of a list. 0 means all.
	Limit int64
	// Continue is the continue token of the previous page.
	Continue string
	// At, if not nil, is the moment in the past that a get or a list reads, from the
	// history.
	At *Moment
	// Until, if not zero, is the end of the time whose changes a get or a list reads. The
	// time begins at At.
	Until time.Time
	// Legacy says that the watch has the older form, with "watch" in the path. The
	// right to such a watch does not depend on selectors.
	Legacy bool
}

// Query is one validated read. It is authorized by its [Query.Params], and the same
// value is then read, and requests to the API server are built from it. A Query is
// immutable; [Query.Within] returns a narrower copy.
type Query struct {
	params Params
	bound  bool
	// resource is the cluster's description of params.Resource, once bound is true.
	resource cluster.Resource
	objects  codec.Codec[*codec.Raw] // of the resource
	// within, if not nil, are the only namespaces to be read, sorted.
	within []string
	custom map[string]selectable // the fields from a CustomResourceDefinition, once it has been read
}

// NewQuery validates the parameters of a query. Errors are [*mirror.Error]s of reason
// Invalid. Names must satisfy the API server's own rule for storage and paths,
// IsPathSegmentName in k8s.io/apimachinery. As at the API server, a namespace whose
// name is not valid has no objects.
func NewQuery(p Params) (*Query, error) {
	if p.Cluster == nil || p.Resource.Resource == "" || p.Resource.Version == "" {
		return nil, mirror.Invalidf("the query names no resource of a cluster")
	}
	if p.Verb == Get && p.Name == "" {
		return nil, mirror.Invalidf("get %s: a name is required", p.Resource.Resource)
	}
	if wrong := content.IsPathSegmentName(p.Name); len(wrong) > 0 && p.Verb == Get { // in a list or watch it is only part of a selector
		return nil, mirror.Invalidf("%.80q cannot be the name of an object: %s", p.Name, strings.Join(wrong, "; "))
	}
	if p.Namespace == "." || p.Namespace == ".." || strings.Contains(p.Namespace, "/") {
		return nil, mirror.Invalidf("%.80q cannot be the name of a namespace", p.Namespace)
	}
	switch p.Source {
	case "":
		p.Source = Cache
	case Cache, Live:
	default:
		return nil, &mirror.Error{Reason: mirror.Invalid, Message: fmt.Sprintf("there is no source %.80q", p.Source), Exists: []string{string(Cache), string(Live)}}
	}
	if t, err := parseToken(p.Continue); err == nil && t.At != "" {
		// The moment of a page is that of the first one, and is what is authorized.
		at, err := parseMoment(t.At)
		if err != nil {
			return nil, badToken(err.Error())
		}
		p.At = &at
	}
	switch {
	case p.Verb != List && p.Until.IsZero() && (p.Limit != 0 || p.Continue != ""):
		return nil, mirror.Invalidf("a %s has no pages: leave out limit and continue", p.Verb)
	case p.At != nil && (p.Verb == Watch || p.Source == Live):
		return nil, mirror.Invalidf("a moment in the past can be got or listed, from the cache: leave out watch and source=live")
	case p.Limit < 0:
		return nil, mirror.Invalidf("the limit %d is negative", p.Limit)
	}
	if p.Verb != Get && p.Name != "" {
		one := fields.OneTermEqualSelector("metadata.name", p.Name)
		if p.Fields != nil && !p.Fields.Empty() {
			one = fields.AndSelectors(p.Fields, one)
		}
		p.Fields = one
	} else if p.Verb != Get && p.Fields != nil && !p.Legacy {
		if name, ok := p.Fields.RequiresExactMatch("metadata.name"); ok && name != "" && len(content.IsPathSegmentName(name)) == 0 {
			p.Name = name
		}
	}
	return &Query{params: p}, nil
}

// Params returns the parameters of the query. For a list or watch that selects one
// name, both Name and Fields have it.
func (q *Query) Params() Params { return q.params }

// Resource is the cluster's description of the query's resource; see [Query.Bind].
func (q *Query) Resource() cluster.Resource { return q.resource }

func (q *Query) String() string {
	return fmt.Sprintf("%s of cluster %s", q.resource, q.params.Cluster.Name())
}

// Bind sets the cluster's description of the query's resource, and checks that the
// query has a namespace if the resource is namespaced and the verb needs one, and none
// otherwise. A query must be bound before it is read.
func (q *Query) Bind(r cluster.Resource) error {
	if r.GVR() != q.params.Resource {
		return mirror.Invalidf("a query for %s cannot be bound to %s", q.params.Resource.Resource, r)
	}
	q.resource, q.bound = r, true
	var err error
	q.objects, err = codec.For[*codec.Raw](r.GVK(), codec.Options{})
	switch {
	case err != nil:
		return err
	case !r.Namespaced && q.params.Namespace != "":
		return mirror.Invalidf("%s are not namespaced: leave out the namespace", r)
	case r.Namespaced && q.params.Namespace == "" && q.params.Verb == Get:
		return mirror.Invalidf("%s are namespaced: a namespace is required to get %q", r, q.params.Name)
	}
	return nil
}

// checkOffered returns an error if the query's resource cannot be read as requested.
func (q *Query) checkOffered(ctx context.Context) error {
	switch r := q.resource; {
	case !q.bound:
		return mirror.Invalidf("the query is not bound to a resource")
	case q.params.Source == Live:
		if !r.Can(string(q.params.Verb)) {
			return &mirror.Error{Reason: mirror.NotOffered, Message: fmt.Sprintf("the verb %s is not supported for %s", q.params.Verb, q)}
		}
	case !r.Can("list") || !r.Can("watch"):
		return &mirror.Error{Reason: mirror.NotOffered, Message: fmt.Sprintf("%s do not support both list and watch, so they are not mirrored; use source=live", q)}
	}
	return q.checkFields(ctx)
}

// Within returns the query limited to some namespaces, which must be sorted. An empty
// list selects no objects. Within is for lists and watches of all namespaces from the
// cache.
func (q *Query) Within(namespaces []string) (*Query, error) {
	switch {
	case !q.resource.Namespaced:
		return nil, mirror.Invalidf("%s are not namespaced: leave out the namespaces", q.resource)
	case q.params.Namespace != "" || q.params.Verb == Get || q.params.Source == Live:
		return nil, mirror.Invalidf("only a list or watch of all namespaces from the cache can be limited to several namespaces")
	case !slices.IsSorted(namespaces):
		return nil, mirror.Invalidf("the namespaces are not sorted")
	}
	out := *q
	if out.within = namespaces; namespaces == nil {
		out.within = []string{}
	}
	return &out, nil
}

// OfNamespace returns the query limited to one namespace, as if it had been asked for. It is for
// lists and watches of all namespaces, or of several with that one.
func (q *Query) OfNamespace(namespace string) (*Query, error) {
	if q.params.Namespace != "" || q.within != nil && !slices.Contains(q.within, namespace) || q.params.Verb == Get {
		return nil, mirror.Invalidf("only a list or watch of the namespace can be limited to it")
	}
	all := *q
	all.within = nil
	return all.With(func(p *Params) { p.Namespace = namespace })
}

// With returns the query with other parameters. It is of the same resource and limited to the same
// namespaces, and for the same caller: change must not make it read what that may not.
func (q *Query) With(change func(*Params)) (*Query, error) {
	p := q.params
	change(&p)
	out, err := NewQuery(p)
	if err == nil {
		err = out.Bind(q.resource)
	}
	if err == nil && q.within != nil {
		return out.Within(q.within)
	}
	return out, err
}

// Namespaces returns the namespaces that the query is limited to by [Query.Within];
// limited is false if it is not.
func (q *Query) Namespaces() (within []string, limited bool) { return q.within, q.within != nil }

// Namespace is the only namespace that can have objects of the query: the requested
// one, or the one that the field selector requires. Empty means any.
func (q *Query) Namespace() string {
	if q.params.Namespace == "" && q.params.Fields != nil && q.resource.Namespaced {
		namespace, _ := q.params.Fields.RequiresExactMatch("metadata.namespace")
		return namespace
	}
	return q.params.Namespace
}

// Everything reports whether the query selects by nothing but the namespace.
func (q *Query) Everything() bool {
	return (q.params.Labels == nil || q.params.Labels.Empty()) && (q.params.Fields == nil || q.params.Fields.Empty())
}

// invalidNamespace reports whether no such namespace can exist. No request is sent to
// the API server for it.
func (q *Query) invalidNamespace() bool {
	return q.params.Namespace != "" && len(validation.IsDNS1123Label(q.params.Namespace)) > 0
}

// path is the path of the read in the cluster's API.
func (q *Query) path() apipath.Path {
	r := q.params.Resource
	out := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: q.params.Namespace}
	if q.params.Verb == Get {
		out.Name = q.params.Name
	}
	return out
}

// notFound is the error of an object that does not exist.
func (q *Query) notFound() error {
	where := ""
	if q.params.Namespace != "" {
		where = " in namespace " + q.params.Namespace
	}
	return &mirror.Error{Reason: mirror.NotFound, Message: fmt.Sprintf("there is no %q among the %s%s of cluster %s", q.params.Name, q.resource, where, q.params.Cluster.Name())}
}
