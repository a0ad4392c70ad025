package informer_test

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/tidings-io/tidings/informer"
)

// witness follows an informer, as a handler or in a loop, and keeps the state
// that what it has been told amounts to.
type witness[T informer.Object] struct {
	name         string
	registration *informer.Registration // nil of a loop
	end          context.CancelFunc     // of a loop
	done         chan struct{}          // closed when a loop has ended
	resumes      bool                   // it may believe what it is told of resuming

	mu      sync.Mutex
	gate    chan struct{} // to wait at, nil when the way is free
	known   map[string]T
	synced  bool
	version uint64
	removed bool
	inside  bool   // it has not returned from an event
	wrong   string // what was wrong first

	claims []moment // where it was told it may resume, and what it knew there; to be checked
	past   []past[T]
}

// past is a version that somebody was told he may resume from, and what he knew
// then.
type past[T informer.Object] struct {
	version string
	known   map[string]T
}

func (w *witness[T]) String() string { return w.name }

// Handle takes in an event, and then waits at the gate if there is one.
func (w *witness[T]) Handle(e informer.Event[T]) {
	w.mu.Lock()
	if complaint := w.take(e); complaint != "" && w.wrong == "" {
		w.wrong = fmt.Sprintf("%s is told %s at %q (%s): %s", w.name, line(e), e.ResourceVersion(), describe(e), complaint)
	}
	if w.inside && w.wrong == "" {
		w.wrong = w.name + " is told of something before it has returned from the last event"
	}
	w.inside = true
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	w.mu.Lock()
	w.inside = false
	w.mu.Unlock()
}

func describe[T informer.Object](e informer.Event[T]) string {
	if any(e.Object) == any(*new(T)) {
		return "no object"
	}
	s := identity(e.Object)
	if any(e.Old) != any(*new(T)) {
		s = identity(e.Old) + " > " + s
	}
	return s
}

// take says what is wrong about an event, if anything.
func (w *witness[T]) take(e informer.Event[T]) string {
	if w.removed {
		return "it has been removed"
	}
	if complaint := w.change(e); complaint != "" {
		return complaint
	}
	version := number(e.ResourceVersion())
	if version == 0 { // of several namespaces, one has not been listed yet
		return ""
	}
	if version < w.version {
		return fmt.Sprintf("versions go back from %d", w.version)
	}
	w.version = version
	if e.Resumable && w.resumes {
		w.claims = append(w.claims, moment{version, w.state()})
		w.past = append(w.past[max(0, len(w.past)-9):], past[T]{e.ResourceVersion(), maps.Clone(w.known)})
	}
	return ""
}

// change applies an event to what is known.
func (w *witness[T]) change(e informer.Event[T]) string {
	var none T
	switch e.Type {
	case informer.Bookmark:
		return ""
	case informer.Synced:
		if w.synced {
			return "it has been told so before"
		}
		w.synced = true
		return ""
	}
	key := informer.Key(e.Object)
	have, ok := w.known[key]
	switch e.Type {
	case informer.Added:
		if ok || any(e.Old) != any(none) {
			return fmt.Sprintf("it knows %s", identity(have))
		}
		w.known[key] = e.Object
	case informer.Updated:
		if !ok || !same(have, e.Old) || e.Object.GetUID() != have.GetUID() || number(e.Object.GetResourceVersion()) <= number(have.GetResourceVersion()) {
			return fmt.Sprintf("it knows %v", w.state())
		}
		w.known[key] = e.Object
	case informer.Deleted:
		if !ok || !same(have, e.Old) || e.Object.GetUID() != have.GetUID() {
			return fmt.Sprintf("it knows %v", w.state())
		}
		delete(w.known, key)
	case informer.Sync:
		if !ok || !same(have, e.Object) || any(e.Old) != any(e.Object) {
			return fmt.Sprintf("it knows %v", w.state())
		}
	default:
		return "there is no such event"
	}
	if e.Tombstone && e.Type != informer.Deleted {
		return "nothing was deleted"
	}
	return ""
}

// same says that a and b are one version of one object.
func same[T informer.Object](a, b T) bool {
	return any(a) == any(b) || any(b) != any(*new(T)) && a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

// state is what it knows, under the lock.
func (w *witness[T]) state() state {
	s := state{}
	for key, o := range w.known {
		s[key] = identity(o)
	}
	return s
}

func (w *witness[T]) knows() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state()
}

// verdict is what was wrong about what it has been told, compared with the
// states that the server had.
func (w *witness[T]) verdict(truth func(version uint64) state) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if want := truth(c.version); !maps.Equal(c.state, want) {
			return fmt.Sprintf("%s was told it may resume from %d, and knew %v, where the server had %v", w.name, c.version, c.state, want)
		}
	}
	w.claims = nil
	return w.wrong
}

func (w *witness[T]) isSynced() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.synced
}

// awake says that it ought to know what the store knows: nothing holds it up.
func (w *witness[T]) awake(running bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gate == nil && (running || w.registration == nil)
}

func (w *witness[T]) block() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate == nil {
		w.gate = make(chan struct{})
	}
}

func (w *witness[T]) unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}
