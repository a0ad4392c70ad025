// Package source lists and watches one resource somewhere. A source makes
// requests when it is told to and reports what came of them; what to ask for
// next, and when, is the reflector's business.
package source

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Source is where a reflector gets its objects from. Implementations are safe
// for use by one reflector at a time.
type Source[T any] interface {
	// List fetches one page and calls each for every object in the order they
	// come. The object is the callee's to keep. An error from each ends the
	// list and is returned as it is.
	List(ctx context.Context, opts ListOptions, each func(T) error) (ListResult, error)

	// Watch follows changes and calls each for every event, in order, until
	// the stream ends: nil where the server ended it in good order, an error
	// where it broke off or the server said why. An error from each ends the
	// watch and is returned as it is.
	Watch(ctx context.Context, opts WatchOptions, each func(Event[T]) error) error
}

// Dated is a [Source] that can say which resourceVersion the server is at now: not
// what a cache knows, but the newest. It may be used while a watch is open.
type Dated interface {
	Latest(ctx context.Context) (resourceVersion string, err error)
}

// ListOptions say which page of which state to fetch.
type ListOptions struct {
	// ResourceVersion as the Kubernetes API defines it: "" for the newest.
	ResourceVersion string
	Limit           int64
	Continue        string
}

// ListResult says what was listed.
type ListResult struct {
	ResourceVersion string
	Continue        string
	// Remaining is the number of objects after this page, -1 where the server
	// did not say.
	Remaining int64
}

// WatchOptions say where to start watching.
type WatchOptions struct {
	ResourceVersion string
	// InitialEvents asks for everything there is as Added events, then an
	// InitialEventsEnd bookmark, then changes (KEP-3157, WatchList).
	InitialEvents bool
	// TimeoutSeconds is how long the server should let the watch run. 0 leaves
	// it to the server.
	TimeoutSeconds int64
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
	// Object is the object as the event left it. Not set for Bookmark.
	Object T
	// ResourceVersion is set for Bookmark.
	ResourceVersion string
	// InitialEventsEnd marks the bookmark after the last of the initial events.
	InitialEventsEnd bool
}

// Target names what a source is for: in errors, logs and metrics.
type Target struct {
	Cluster   string
	Resource  schema.GroupVersionResource
	Kind      string
	Namespace string // empty: all of them, or none where the resource has none
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

// Error says what was being done to which resource of which cluster when
// something went wrong. Unwrap gives the cause; for answers of an API server
// that is an *errors.StatusError of apimachinery, so apierrors.IsForbidden and
// its sisters work on it.
type Error struct {
	Target
	Verb string // list or watch
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %v", e.Verb, e.Target, e.Err) }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// DecodeError says that an object arrived and could not be understood.
type DecodeError struct{ Err error }

func (e *DecodeError) Error() string { return "decode an object: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// GoneError says that the resource itself is no longer served: not an object of
// it, and not a server that happens to be starting. Its objects are no more.
type GoneError struct{ Err error }

func (e *GoneError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *GoneError) Unwrap() error { return e.Err }
