// Package source lists and watches one resource. A source makes a request when it is
// called and returns the result. The reflector decides what to request, and when.
package source

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Source makes the list and watch requests of a reflector. One reflector at a time
// may use it.
type Source[T any] interface {
	// List fetches one page and calls each for every object in order. each may keep
	// the object. An error from each ends the list and is returned unchanged.
	List(ctx context.Context, opts ListOptions, each func(T) error) (ListResult, error)

	// Watch follows changes and calls each for every event in order, until the
	// stream ends. It returns nil if the server ended it in good order, and an
	// error if it broke or the server sent one. An error from each ends the watch
	// and is returned unchanged.
	Watch(ctx context.Context, opts WatchOptions, each func(Event[T]) error) error
}

// Versioner is a [Source] that can ask the server for its latest resourceVersion,
// not for that of a cache. It may be used while a watch is open.
type Versioner interface {
	Latest(ctx context.Context) (resourceVersion string, err error)
}

// Preparer is a [Source] that has to do something before it lists, such as reading a
// file. It may take long. If restored is true, the source can deliver a state as the
// initial events of a watch that the server need not send.
type Preparer interface {
	Prepare(ctx context.Context) (restored bool, err error)
}

// ListOptions choose the page to fetch.
type ListOptions struct {
	// ResourceVersion as the Kubernetes API defines it: "" for the latest.
	ResourceVersion string
	Limit           int64
	Continue        string
}

// ListResult describes a page.
type ListResult struct {
	ResourceVersion string
	Continue        string
	// Remaining is the number of objects after this page, -1 if the server did not
	// send it.
	Remaining int64
}

// WatchOptions choose where a watch starts.
type WatchOptions struct {
	ResourceVersion string
	// InitialEvents requests all objects as Added events, then an InitialEventsEnd
	// bookmark, then changes (KEP-3157, WatchList).
	InitialEvents bool
	// TimeoutSeconds is how long the watch should last. 0 leaves it to the server.
	TimeoutSeconds int64
	// Accepted, if not nil, is called when the server has accepted the request, before
	// the first event. The first event may still be an error.
	Accepted func()
}

// EventType is the type of a watch event.
type EventType uint8

// The watch events of the Kubernetes API; errors are returned as errors.
const (
	Added EventType = iota + 1
	Modified
	Deleted
	Bookmark
)

// Event is one watch event.
type Event[T any] struct {
	Type EventType
	// Object is the object after the event. Not set for Bookmark.
	Object T
	// ResourceVersion is set for Bookmark.
	ResourceVersion string
	// InitialEventsEnd marks the bookmark after the last of the initial events.
	InitialEventsEnd bool
}

// Target identifies what a source lists and watches, in errors, logs and metrics.
type Target struct {
	Cluster   string
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string // empty for all namespaces, and for cluster-scoped resources
	Labels    string // label selector
	Fields    string // field selector
}

// String is like "pods in namespace shop of cluster prod".
func (t Target) String() string {
	var b strings.Builder
	b.WriteString(t.Resource.GroupResource().String())
	if t.Namespace != "" {
		fmt.Fprintf(&b, " in namespace %s", t.Namespace)
	}
	fmt.Fprintf(&b, " of cluster %s", t.Cluster)
	return b.String()
}

// Error is the error of a request. It names the verb, the resource and the cluster.
// Unwrap returns the cause; for an answer of an API server that is an
// *errors.StatusError of apimachinery, so apierrors.IsForbidden and the like work.
type Error struct {
	Target
	Verb string // list or watch
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Verb, e.Target, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DecodeError says that an object of an answer could not be decoded.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "decode an object: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// GoneError says that the resource itself is no longer served, so it has no objects.
// It does not stand for a missing object, or for a server that is starting.
type GoneError struct{ Err error }

func (e *GoneError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *GoneError) Unwrap() error { return e.Err }
