package informer

import (
	"strconv"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/processor"
)

// Object is what an informer can keep: a pointer to the Go type of any
// Kubernetes kind (*corev1.Pod), *unstructured.Unstructured, or
// *metav1.PartialObjectMetadata for metadata only.
type Object = object.Object

// EventType says what an [Event] tells.
type EventType uint8

const (
	// Added: an object appeared. Every follower also gets one for each object
	// that is there when it begins to follow, with Event.InInitialList set.
	Added = EventType(processor.Added)
	// Updated: an object changed; Old is its state before.
	Updated = EventType(processor.Updated)
	// Deleted: an object is gone; Object is its last known state.
	Deleted = EventType(processor.Deleted)
	// Sync: nothing happened. A follower with a resync period gets one for
	// each object in the store, each time the period is over; Old is Object.
	Sync = EventType(processor.Sync)
	// Synced: the initial list is complete; every object that was there has
	// been told. Comes once in the life of a follower, and has no Object.
	Synced = EventType(processor.Synced)
	// Bookmark: nothing happened up to Event.ResourceVersion. Only followers
	// that asked for them get these, and they have no Object.
	Bookmark = EventType(processor.Bookmark)
)

var eventTypes = [...]string{Added: "ADDED", Updated: "MODIFIED", Deleted: "DELETED", Sync: "SYNC", Synced: "SYNCED", Bookmark: "BOOKMARK"}

// String is the name the Kubernetes watch API uses, where it has one.
func (t EventType) String() string {
	if int(t) >= len(eventTypes) || eventTypes[t] == "" {
		return "EventType(" + strconv.Itoa(int(t)) + ")"
	}
	return eventTypes[t]
}

// Event is one piece of news. Object and Old are shared with the store and with
// every other reader: they must not be modified.
type Event[T Object] struct {
	Type   EventType
	Object T
	// Old is the state before an Updated or Deleted. It is nil if the informer
	// was started with [From] and had not seen the object before.
	Old T
	// InInitialList says that an Added object was there already when the
	// follower began, or belongs to the first list of the informer.
	InInitialList bool
	// Tombstone says that a deletion was not seen as it happened: the object
	// was missing from a later list, or its name had been taken by another
	// object, or the informer was emptied. Object is the last state known, which
	// may not have been the last. client-go's DeletedFinalStateUnknown.
	Tombstone bool
	// Resumable says that a follower which has handled this event may later
	// resume at its ResourceVersion and miss nothing, see [Informer.EventsSince].
	// The events of one list are resumable only at its end.
	Resumable bool
	// Folded says that the event stands for several, see [FoldAfter]: what is
	// told from the last Resumable event to the next is then not what somebody
	// who resumes in between will be told.
	Folded bool

	version uint64
}

// ResourceVersion is the version of the store when the event had happened: for
// a change the object's own, for what a list brought to light the list's. Empty
// where the server's versions are not decimal numbers.
func (e Event[T]) ResourceVersion() string {
	if e.version == 0 {
		return ""
	}
	return strconv.FormatUint(e.version, 10)
}
