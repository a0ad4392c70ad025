package informer

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/reflector"
)

// Phase is the phase of an informer.
type Phase string

// The phases of an informer.
const (
	Stopped  Phase = "stopped"  // not started, or stopped
	Listing  Phase = "listing"  // fetching everything there is
	Watching Phase = "watching" // following changes
	Waiting  Phase = "waiting"  // backing off after LastError, to retry
	Denied   Phase = "denied"   // like Waiting: the permission to list or watch was revoked
	Gone     Phase = "gone"     // like Waiting: the resource is no longer served, and its objects are deleted
	Refused  Phase = "refused"  // not running: the server refused, see LastError
)

// Status is a snapshot of what an informer is doing.
type Status struct {
	Cluster   string
	Resource  schema.GroupVersionResource // Version and Group may be empty until the first answer
	Namespace string                      // several are separated by commas

	Phase Phase
	Since time.Time // when the phase began
	// Synced is set once the store has held a complete list. It stays set while
	// the connection is down, until the informer is emptied or its resource is
	// gone.
	Synced  bool
	Objects int
	Bytes   int64  // of the objects, if they are stored encoded
	Events  uint64 // changes of the store so far
	// ResourceVersion is the newest version known to be in the store.
	ResourceVersion string

	// LastError is the last failure, at LastErrorTime. It stays set after
	// recovery; Phase shows whether it still matters.
	LastError     error
	LastErrorTime time.Time
	Retry         time.Time // when a Waiting informer retries
	Lists         uint64    // complete lists; all but the first are relists
	Watches       uint64    // watches begun
	Errors        uint64    // requests that failed
	// Received counts the objects of the current or last list. Expected is the
	// total that the server announced, or -1 if it announced none.
	Received, Expected int64
	LastContact        time.Time // when the server last sent something

	// Panics counts the panics of the functions of [Transform], [Filter] and
	// [Informer.AddIndex]. LastPanic is the last one, nil if there was none.
	Panics    uint64
	LastPanic *PanicError

	// Lag is the number of events that the slowest handler or loop has not
	// received yet.
	Lag uint64
	// Handlers are the registered handlers, in the order of registration.
	Handlers []HandlerStatus

	phase reflector.Phase
}

// Status returns the current status of the informer.
func (inf *Informer[T]) Status() Status {
	target, stats, latest := inf.target(), inf.store.Stats(), inf.store.Latest()
	s := Status{
		Cluster: target.Cluster, Resource: target.Resource, Namespace: target.Namespace,
		Phase: Stopped, Synced: latest.Synced,
		Objects: stats.Objects, Bytes: stats.Bytes, Events: stats.Events,
		ResourceVersion: formatVersion(latest.ResourceVersion),
		Expected:        -1,
	}
	s.Panics, s.LastPanic = inf.opts.panics.status()
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
	for i, one := range r.reflectors {
		s.include(one.Status(), i == 0)
	}
	return s
}

// include adds the status of one of the informer's reflectors. The worst phase is
// that of the informer.
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

// severity orders the phases by how much attention they need.
var severity = [...]int{reflector.Stopped: 1, reflector.Watching: 0, reflector.Listing: 2, reflector.Waiting: 3, reflector.Denied: 4, reflector.Gone: 5, reflector.Refused: 6}

// StatusChanged returns a channel that is closed when the informer starts or ends,
// or its Phase, LastError or Lists change. To follow the status, call it before
// [Informer.Status] and wait for the channel.
func (inf *Informer[T]) StatusChanged() <-chan struct{} {
	return inf.changed.Next()
}
