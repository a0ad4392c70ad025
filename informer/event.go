package informer

import (
	"strconv"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// Object is what an informer can keep: a pointer to the Go type of any
// Kubernetes kind (*corev1.Pod), *unstructured.Unstructured, or
// *metav1.PartialObjectMetadata for metadata only.
type Object = object.Object

// EventType is the type of an [Event].
type EventType uint8

const (
	// Added: an object appeared. A new subscriber also gets one for each object
	// in the store, with Event.InInitialList set.
	Added = EventType(subscriber.Added)
	// Updated: an object changed. Old is its previous state.
	Updated = EventType(subscriber.Updated)
	// Deleted: an object is gone. Object is its last known state.
	Deleted = EventType(subscriber.Deleted)
	// Sync: nothing happened. A subscriber with a resync period gets one for
	// each object in the store, once per period. Old is Object.
	Sync = EventType(subscriber.Sync)
	// Synced: the initial list has been delivered. It comes once in the life of
	// a subscriber and has no Object.
	Synced = EventType(subscriber.Synced)
	// Bookmark: nothing else happened up to Event.ResourceVersion. It has no
	// Object, and is delivered with the option [Bookmarks] only.
	Bookmark = EventType(subscriber.Bookmark)
)

var eventTypes = [...]string{Added: "ADDED", Updated: "MODIFIED", Deleted: "DELETED", Sync: "SYNC", Synced: "SYNCED", Bookmark: "BOOKMARK"}

// String returns the name that the Kubernetes watch API uses, if it has one.
func (t EventType) String() string {
	if int(t) >= len(eventTypes) || eventTypes[t] == "" {
		return "EventType(" + strconv.Itoa(int(t)) + ")"
	}
	return eventTypes[t]
}

// Event is what a handler or a loop receives. Object and Old are shared with the
// store and all other readers: they must not be modified.
type Event[T Object] struct {
	Type EventType
	// Object is the current state, or the last known one of a Deleted. Synced and
	// Bookmark have none: it is nil.
	Object T
	// Old is the state before an Updated or Deleted. It is nil if the informer
	// was started with [From] and had not seen the object before.
	Old T
	// InInitialList is set for an Added object that existed when the subscriber
	// began, or that belongs to the first list of the informer.
	InInitialList bool
	// Tombstone is set if a deletion was not seen as it happened: the object was
	// missing from a later list, another object had taken its name, or the
	// informer was emptied. Object is then the last known state, which may not
	// be the last. It corresponds to client-go's DeletedFinalStateUnknown.
	Tombstone bool
	// Resumable is set if a subscriber that has handled this event can later
	// resume at its ResourceVersion and miss nothing, see
	// [Informer.EventsSince]. The events of one list are resumable only at its
	// end.
	Resumable bool
	// Relist is set if a list found the change, because the watch was interrupted.
	// There may have been other changes before it that nobody has seen. With the
	// option [Bookmarks], a list that found no change is a Bookmark with Relist set.
	Relist bool
	// Folded is set if the event stands for several, see [FoldAfter]. The events
	// between two Resumable ones are then not those that a subscriber receives
	// which resumes between them.
	Folded bool

	version uint64
}

// ResourceVersion is the version of the store after the event: the object's own
// for a change from a watch, the list's for a change from a list. It is empty if
// the server's versions are not decimal numbers.
func (e Event[T]) ResourceVersion() string { return formatVersion(e.version) }

// formatVersion prints a resourceVersion. 0 is one that is not known.
func formatVersion(version uint64) string {
	if version == 0 {
		return ""
	}
	return strconv.FormatUint(version, 10)
}
