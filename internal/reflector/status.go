package reflector

import (
	"sync"
	"time"
)

// Phase is what a reflector is doing.
type Phase uint8

// The phases. A reflector begins Listing and then goes round the circle
// Listing → Watching → Waiting, skipping what it need not do.
const (
	Stopped  Phase = iota // not running
	Listing               // fetching everything there is
	Watching              // following changes
	Waiting               // backing off after an error, which Status.Err tells
	Denied                // the same, and the error is that the right was taken away
	Gone                  // the same, and the error is that the resource is no longer served
	Refused               // ended: the server says no, and asking again won't help
)

var phases = [...]string{"stopped", "listing", "watching", "waiting", "denied", "gone", "refused"}

func (p Phase) String() string { return phases[p] }

// Status is what there is to know about a reflector at one moment.
type Status struct {
	Phase Phase
	// Since is when the phase began.
	Since time.Time
	// ResourceVersion is the last one seen: where a watch would go on.
	ResourceVersion string
	// Err is the last error and ErrTime its time. Err stays set after
	// recovery, until the next start; Phase tells whether it still matters.
	Err     error
	ErrTime time.Time
	// Retry is when a Waiting reflector tries again.
	Retry time.Time
	// Lists counts complete lists; the first is the initial one, the others
	// are relists. Watches counts watches begun, Errors requests that failed.
	Lists, Watches, Errors uint64
	// Received counts the objects of the list in progress, or of the last
	// one; Expected is how many the server said there would be, -1 if it did
	// not say.
	Received, Expected int64
	// Contact is when the server was last heard of: an object, an event, a
	// bookmark.
	Contact time.Time
}

// Board holds a status for everyone to read. Changed, if not nil, is called when
// the Phase, the Err or the Lists have changed; it must not block.
type Board struct {
	Changed func()

	mu     sync.Mutex
	status Status
}

// Status is the status at this moment.
func (b *Board) Status() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

// Note changes the status, and dates a new Phase.
func (b *Board) Note(change func(*Status)) {
	b.mu.Lock()
	before := b.status
	change(&b.status)
	if b.status.Phase != before.Phase {
		b.status.Since = time.Now()
	}
	news := b.status.Phase != before.Phase || b.status.ErrTime != before.ErrTime || b.status.Lists != before.Lists
	b.mu.Unlock()
	if news && b.Changed != nil {
		b.Changed()
	}
}

// heard notes what an event of a watch tells, which came at that time or, in a
// rush, a few events later. It is done for each of them, and
// changes nothing that anybody waits for.
func (b *Board) heard(version string, at time.Time) {
	b.mu.Lock()
	b.status.ResourceVersion = version
	if at.After(b.status.Contact) {
		b.status.Contact = at
	}
	b.mu.Unlock()
}
