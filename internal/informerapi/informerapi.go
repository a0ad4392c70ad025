// Package informerapi is the part of package informer's API that only this
// project may use. It is kept out of the public API because its rules are easy
// to break and its callers know the store.
package informerapi

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/internal/object"
)

// Informer is the internal API of an informer.Informer[T]. V is its view type,
// *informer.View[T].
type Informer[T object.Object, V any] interface {
	// Latest returns the resourceVersion and the number of objects of the newest
	// state. It is a cheap part of Status.
	Latest() (resourceVersion string, objects int)

	// Generation identifies the objects that a view contains. Views of one
	// informer with the same generation contain the same objects, even if a
	// bookmark has changed the resourceVersion. Caches of results use it.
	Generation(view V) uint64

	// ViewBefore returns the newest state and how it differs from the state at an
	// earlier resourceVersion: before maps the key of each object that has been
	// added, updated or deleted since to its state then, nil if it did not exist.
	// The caller must release the view. The error is informer.ErrExpired if the
	// log does not reach back to the version or has no boundary there.
	ViewBefore(resourceVersion string) (view V, before map[string]T, err error)

	// Confirm records that nothing the informer mirrors has changed between the
	// state of view and resourceVersion, as a bookmark of that version would.
	// It returns false and does nothing if view is not the newest state any more
	// or resourceVersion is not a decimal number.
	Confirm(view V, resourceVersion string) bool

	// IndexLabels counts a search of a view by selector, and builds the label
	// indexes that the informer's next views should have. Views build none
	// themselves. found says whether the search found any object.
	IndexLabels(selector labels.Selector, found bool)

	// Progress returns how far the readers of the informer's events are.
	Progress() Progress

	// Retry ends the wait after a failed request, if there is one. The caller
	// knows that a retry may succeed now.
	Retry()
}

// Progress is the state of an informer's log and of those who read it.
type Progress struct {
	Retained uint64   // events that the log keeps for readers that resume
	Readers  []Reader // loops over the informer's events, in no order
}

// Reader is the progress of a loop over an informer's events.
type Reader struct {
	Lag    uint64    // changes of the store that it has not received yet
	Since  time.Time // when the oldest event that waits for it came; zero if none waits
	Folded uint64    // events that were folded into others
}

// Of returns the internal API of an informer.
func Of[T object.Object, V any](informer interface {
	Get(namespace, name string) (T, bool)
	View() V
}) Informer[T, V] {
	return Open(informer).(Informer[T, V])
}

// Open is set by package informer.
var Open func(informer any) any
