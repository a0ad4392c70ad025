package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/reflector"
)

// Phase is what an informer is doing.
type Phase string

// The phases of an informer.
const (
	Stopped  Phase = "stopped"  // not started, or stopped
	Listing  Phase = "listing"  // fetching everything there is
	Watching Phase = "watching" // following changes
	Waiting  Phase = "waiting"  // backing off after LastError, to try again
	Denied   Phase = "denied"   // the same; the right to list or watch was taken away
	Gone     Phase = "gone"     // the same; the resource is no longer served, and its objects are deleted
	Refused  Phase = "refused"  // the server said no, see LastError; does not run
)

// Status is what there is to know about an informer at one moment.
type Status struct {
	Cluster   string
	Resource  schema.GroupVersionResource // Version and Group may be empty until the first answer
	Namespace string                      // several are separated by commas

	Phase Phase
	Since time.Time // when the phase began
	// Synced says that the store has held a complete list. It stays so while
	// the connection is down, until the informer is emptied or its resource is
	// gone.
	Synced  bool
	Objects int
	Bytes   int64  // of the objects, where the representation knows its size
	Events  uint64 // changes told so far
	// ResourceVersion is the newest version known to be in the store.
	ResourceVersion string

	// LastError is the last thing that went wrong, at LastErrorTime. It stays
	// after recovery; Phase tells whether it still matters.
	LastError     error
	LastErrorTime time.Time
	Retry         time.Time // when an informer that is Waiting tries again
	Lists         uint64    // complete lists; all but the first are relists
	Watches       uint64    // watches begun
	Errors        uint64    // requests that failed
	// Received counts the objects of the list in progress or the last one,
	// Expected how many the server said there would be, -1 if it did not say.
	Received, Expected int64
	LastContact        time.Time // when the server was last heard of

	// Lag is the number of events that the slowest handler or loop has not come
	// to.
	Lag uint64
	// Handlers are those that are registered, in that order.
	Handlers []HandlerStatus

	phase reflector.Phase
}

// Status may be called at any time.
func (inf *Informer[T]) Status() Status {
	target, stats, latest := inf.target(), inf.engine.stats(), inf.engine.latest()
	s := Status{
		Cluster: target.Cluster, Resource: target.Resource, Namespace: target.Namespace,
		Phase: Stopped, Synced: latest.synced,
		Objects: stats.Objects, Bytes: stats.Bytes, Events: stats.Events,
		ResourceVersion: Event[T]{version: latest.resourceVersion}.ResourceVersion(),
		Expected:        -1,
	}
	for _, h := range inf.registered() {
		status := h.status()
		s.Handlers = append(s.Handlers, status)
		s.Lag = max(s.Lag, status.Lag)
	}
	inf.mu.Lock()
	r := inf.run
	for l := range inf.loops {
		s.Lag = max(s.Lag, l.status().Lag)
	}
	inf.mu.Unlock()
	if r == nil {
		return s
	}
	for i, f := range r.reflectors {
		s.include(f.Status(), i == 0)
	}
	return s
}

// include takes in the status of one of the informer's reflectors. What is
// worst counts for the whole.
func (s *Status) include(r reflector.Status, first bool) {
	if first || severity[r.Phase] > severity[s.phase] {
		s.phase, s.Phase, s.Since, s.Retry = r.Phase, Phase(r.Phase.String()), r.Since, r.Retry
	}
	if r.ErrTime.After(s.LastErrorTime) {
		s.LastError, s.LastErrorTime = r.Err, r.ErrTime
	}
	if first || r.Contact.Before(s.LastContact) {
		s.LastContact = r.Contact
	}
	s.Lists, s.Watches, s.Errors = s.Lists+r.Lists, s.Watches+r.Watches, s.Errors+r.Errors
	s.Received += r.Received
	switch {
	case first:
		s.Expected = r.Expected
	case s.Expected >= 0 && r.Expected >= 0:
		s.Expected += r.Expected
	default:
		s.Expected = -1
	}
}

// severity orders the phases by how much they need somebody's attention.
var severity = [...]int{reflector.Stopped: 1, reflector.Watching: 0, reflector.Listing: 2, reflector.Waiting: 3, reflector.Denied: 4, reflector.Gone: 5, reflector.Refused: 6}

// StatusChanged returns a channel that is closed when the informer starts or
// ends, or its Phase, LastError or Lists change: what to wait for between two looks
// at [Informer.Status].
func (inf *Informer[T]) StatusChanged() <-chan struct{} {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.changed
}
