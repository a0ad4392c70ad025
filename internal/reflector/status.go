package reflector

import (
	"sync"
	"time"
)

// Phase is what a reflector is doing.
type Phase uint8

// The phases. A reflector begins with Listing and then repeats Listing, Watching
// and Waiting, leaving out what is not needed.
const (
	Stopped  Phase = iota // not running
	Listing               // fetching all objects
	Watching              // following changes
	Waiting               // backing off after the error in Status.Err
	Denied                // backing off: a right that was granted before has been revoked
	Gone                  // backing off: the resource is no longer served
	Refused               // ended: the server refuses the request, and a retry would not help
)

var phases = [...]string{"stopped", "listing", "watching", "waiting", "denied", "gone", "refused"}

func (p Phase) String() string { return phases[p] }

// Status is the status of a reflector at one time.
type Status struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// ResourceVersion is the last one seen: a watch would start after it.
	ResourceVersion string
	// Err is the last error and ErrTime its time. Err stays set after recovery,
	// until the next start; Phase tells whether it still matters.
	Err     error
	ErrTime time.Time
	// Retry is when a Waiting reflector tries again.
	Retry time.Time
	// Lists counts complete lists: the initial one and relists. Watches counts
	// watches begun, Errors failed requests.
	Lists, Watches, Errors uint64
	// Received counts the objects of the list in progress, or of the last one.
	// Expected is the total that the server announced, -1 if it did not.
	Received, Expected int64
	// Contact is when the server last sent anything: an object, an event, a
	// bookmark.
	Contact time.Time
}

// Tracker keeps a status. It is safe for concurrent use. Changed, if not nil, is
// called when the Phase, the Err or the Lists have changed; it must not block.
type Tracker struct {
	Changed func()

	mu     sync.Mutex
	status Status
}

// Status returns the current status.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

// Update changes the status, and sets Since if the Phase is a new one.
func (t *Tracker) Update(change func(*Status)) {
	t.mu.Lock()
	before := t.status
	change(&t.status)
	if t.status.Phase != before.Phase {
		t.status.Since = time.Now()
	}
	changed := t.status.Phase != before.Phase || t.status.ErrTime != before.ErrTime || t.status.Lists != before.Lists
	t.mu.Unlock()
	if changed && t.Changed != nil {
		t.Changed()
	}
}

// received notes the version of a watch event and its time. While events come
// fast, the time is that of an event a few before. It runs for each event and
// never calls Changed.
func (t *Tracker) received(version string, at time.Time) {
	t.mu.Lock()
	t.status.ResourceVersion = version
	if at.After(t.status.Contact) {
		t.status.Contact = at
	}
	t.mu.Unlock()
}
