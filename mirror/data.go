package mirror

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Source says where a query is answered from.
type Source string

// The sources. The empty one means Cache.
const (
	Cache Source = "cache" // the mirror's memory
	Live  Source = "live"  // the cluster's API server, at the time of asking
)

// Query says which objects are asked for.
type Query struct {
	Target
	// Namespace limits the query to one. Empty means all of them, or that the
	// resource has none.
	Namespace string
	// Namespaces, if not nil, limits the query to these, which are sorted; none
	// of them means no objects. Not together with Namespace, and of the cache
	// only.
	Namespaces []string
	// Name of the one object wanted; for Get only.
	Name string
	// Labels and Fields, if not nil, select among the objects.
	Labels labels.Selector
	Fields fields.Selector
	// Limit is the number of objects on a page of a list, 0: all.
	Limit int64
	// Continue is the token of the page before, for the same query.
	Continue string
	Source   Source

	custom map[string]selectable // the fields a CustomResourceDefinition adds, once they are known
}

// ListMeta says what was listed.
type ListMeta struct {
	// ResourceVersion the list is of; a watch may begin there.
	ResourceVersion string
	// Continue is the token of the next page, empty on the last one.
	Continue string
	// Remaining is the number of objects after this page, -1 if unknown.
	Remaining int64
}

// EventType says what an [Event] tells.
type EventType string

// The events of a watch.
const (
	Added    EventType = "ADDED"    // an object is there, or has come to match
	Modified EventType = "MODIFIED" // an object has changed
	Deleted  EventType = "DELETED"  // an object is gone, or no longer matches
	Synced   EventType = "SYNCED"   // everything there is has been told; changes follow
	Reset    EventType = "RESET"    // forget everything: it is about to be told anew
	Bookmark EventType = "BOOKMARK" // nothing to tell, but the position has moved
)

// Event is one event of a watch.
type Event struct {
	Type EventType
	// Object is set for Added, Modified and Deleted. For Deleted it is the last
	// state that matched.
	Object *Object
	// ResourceVersion of the whole when the event had happened; may be empty.
	ResourceVersion string
	// Position is where a watch goes on behind this event, see [Data]. Empty:
	// as before.
	Position string
}

// Data answers queries. What it returns is shared and must not be modified.
// Errors are of type [*Error], or the context's.
type Data interface {
	// Get returns one object and the version of the state it was found in.
	Get(ctx context.Context, q Query) (*Object, string, error)

	// List calls each for every object that matches, ordered by namespace and
	// name. An error from each ends the list and is returned as it is.
	List(ctx context.Context, q Query, each func(*Object) error) (ListMeta, error)

	// Watch yields what happens to the objects that match, until ctx ends, the
	// loop is left, or there is an error, which comes last. An object that
	// changes so that it no longer matches is told as Deleted, one that comes
	// to match as Added.
	//
	// since is the position of the last event handled, or a resourceVersion of
	// a list: the watch goes on behind it, or, if that is not possible, says
	// Reset and begins anew. Empty means to begin with everything there is,
	// then Synced; "0" the same after Reset, for one who may have half of it.
	//
	// The iterator is for one loop. One that is never used costs memory until
	// it is collected.
	Watch(ctx context.Context, q Query, since string) (iter.Seq2[Event, error], error)
}

var (
	_ Data = (*Mirror)(nil)
	_ Data = cache{}
	_ Data = live{}
)

// Get implements [Data], by the query's source.
func (m *Mirror) Get(ctx context.Context, q Query) (*Object, string, error) {
	d, err := m.data(ctx, &q)
	if err != nil {
		return nil, "", err
	}
	if q.Name == "" {
		return nil, "", invalid("get one of %s: no name is given", q.Target)
	}
	return d.Get(ctx, q)
}

// List implements [Data], by the query's source.
func (m *Mirror) List(ctx context.Context, q Query, each func(*Object) error) (ListMeta, error) {
	d, err := m.data(ctx, &q)
	if err != nil {
		return ListMeta{}, err
	}
	return d.List(ctx, q, each)
}

// Watch implements [Data], by the query's source.
func (m *Mirror) Watch(ctx context.Context, q Query, since string) (iter.Seq2[Event, error], error) {
	d, err := m.data(ctx, &q)
	if err != nil {
		return nil, err
	}
	if q.Limit != 0 || q.Continue != "" {
		return nil, invalid("a watch has no pages: leave out limit and continue")
	}
	return d.Watch(ctx, q, since)
}

// data checks a query and chooses who answers it.
func (m *Mirror) data(ctx context.Context, q *Query) (Data, error) {
	if q.member == nil {
		return nil, invalid("a query without a target")
	}
	if err := q.check(ctx); err != nil {
		return nil, err
	}
	switch q.Source {
	case Cache, "":
		if err := q.offered(); err != nil {
			return nil, err
		}
		return cache{m}, nil
	case Live:
		return live{m}, nil
	}
	return nil, &Error{Reason: Invalid, Message: fmt.Sprintf("there is no source %q", q.Source), Exists: []string{string(Cache), string(Live)}}
}

// check sees that a query makes sense, and that nothing in it that will be part
// of a path to an API server can mean another path.
func (q *Query) check(ctx context.Context) error {
	if q.Namespace != "" {
		if !q.Resource.Namespaced {
			return invalid("%s are not namespaced: ask without a namespace", q.Resource)
		}
		if wrong := validation.IsDNS1123Label(q.Namespace); len(wrong) > 0 {
			return invalid("%.80q cannot be the name of a namespace: %s", q.Namespace, strings.Join(wrong, "; "))
		}
	}
	if q.Namespaces != nil {
		switch {
		case !q.Resource.Namespaced:
			return invalid("%s are not namespaced: ask without namespaces", q.Resource)
		case q.Namespace != "" || q.Name != "" || q.Source == Live:
			return invalid("a query limited to several namespaces is a list or a watch of the cache")
		case !slices.IsSorted(q.Namespaces):
			return invalid("the namespaces are not sorted")
		}
	}
	if q.Name != "" {
		if q.Resource.Namespaced && q.Namespace == "" {
			return invalid("%s are namespaced: %q is sought in which namespace?", q.Resource, q.Name)
		}
		wrong := content.IsPathSegmentName(q.Name)
		if len(q.Name) > validation.DNS1123SubdomainMaxLength {
			wrong = append(wrong, "it is too long")
		}
		if len(wrong) > 0 {
			return invalid("%.80q cannot be the name of an object: %s", q.Name, strings.Join(wrong, "; "))
		}
	}
	if q.Limit < 0 {
		return invalid("a limit of %d makes no sense", q.Limit)
	}
	return q.checkFields(ctx)
}

// offered says whether the query's resource can be mirrored.
func (q *Query) offered() error {
	if !q.Resource.Can("list") || !q.Resource.Can("watch") {
		return &Error{Reason: NotOffered, Message: fmt.Sprintf("%s cannot be both listed and watched there, so they are not mirrored; ask with source=live", q.Target)}
	}
	return nil
}

// missing is the error of an object that is not there.
func missing(q Query) error {
	where := ""
	if q.Namespace != "" {
		where = " in namespace " + q.Namespace
	}
	return &Error{Reason: NotFound, Message: fmt.Sprintf("there is no %q among the %s%s of cluster %s", q.Name, q.Resource, where, q.Cluster())}
}
