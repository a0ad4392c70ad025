package clientgo_test

import (
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// witness is a handler that keeps the state that what it has been told amounts
// to.
type witness struct {
	name         string
	ours         bool
	server       *flaky
	resyncs      bool        // it is to be told again of what there is
	begin        state       // what the store held when it came, nil if that had no list yet
	store        cache.Store // nil: it may be ahead of the handler
	registration cache.ResourceEventHandlerRegistration

	mu      sync.Mutex
	synced  func() bool
	gate    chan struct{} // to wait at, nil when the way is free
	known   map[string]*corev1.Pod
	gone    map[string]string // the last deletion of each key
	initial state             // what came as part of the initial list
	inside  string            // the event it has not returned from
	again   int               // resyncs told
	removed bool
	wrong   string // what was wrong first
}

func (w *witness) OnAdd(obj any, initial bool) {
	p := obj.(*corev1.Pod)
	w.take("add "+describe(p), initial, func() string {
		if have := w.known[key(p)]; have != nil {
			return "it knows " + describe(have)
		}
		// client-go may be at the next event before it says that a handler has
		// synced.
		if synced := w.synced != nil && w.synced(); initial && synced || w.ours && !initial && !synced {
			return fmt.Sprintf("it has synced: %t, and this is of the initial list: %t", synced, initial)
		}
		if w.known[key(p)] = p; initial {
			if w.initial == nil {
				w.initial = state{}
			}
			w.initial[key(p)] = identity(p)
		}
		return w.held(p)
	})
}

func (w *witness) OnUpdate(old, obj any) {
	was, p := old.(*corev1.Pod), obj.(*corev1.Pod)
	w.take("update "+describe(was)+" > "+describe(p), false, func() string {
		have := w.known[key(p)]
		if have == nil || key(was) != key(p) || identity(have) != identity(was) {
			return fmt.Sprintf("it knows %v", w.state())
		}
		if was == p {
			if w.again++; !w.resyncs {
				return "it has not asked for resyncs"
			}
		}
		if v, now := number(was.ResourceVersion), number(p.ResourceVersion); was.UID == p.UID && now < v && w.server.lives() == 1 {
			return "it goes back"
		}
		w.known[key(p)] = p
		return w.held(p)
	})
}

func (w *witness) OnDelete(obj any) {
	unseen, isUnseen := obj.(cache.DeletedFinalStateUnknown)
	if isUnseen {
		obj = unseen.Obj
	}
	p := obj.(*corev1.Pod)
	w.take("delete "+describe(p), false, func() string {
		have := w.known[key(p)]
		switch {
		case have == nil && !isUnseen && w.gone[key(p)] == identity(p): // the source said so twice
		case have == nil || have.UID != p.UID:
			return fmt.Sprintf("it knows %v", w.state())
		case isUnseen && (unseen.Key != key(p) || identity(have) != identity(p)):
			return "the tombstone is not of what it knows, " + describe(have)
		case !isUnseen && number(p.ResourceVersion) <= number(have.ResourceVersion):
			return "it knows " + describe(have)
		}
		if w.gone == nil {
			w.gone = map[string]string{}
		}
		w.gone[key(p)] = identity(p)
		delete(w.known, key(p))
		return w.held(nil, key(p))
	})
}

func describe(p *corev1.Pod) string { return key(p) + "=" + identity(p) }

// held says what is wrong about the store of a controller, which waits for its
// handler: it must hold what it tells of, and nothing later.
func (w *witness) held(p *corev1.Pod, gone ...string) string {
	if w.store == nil {
		return ""
	}
	if p != nil {
		if o, ok, _ := w.store.GetByKey(key(p)); !ok || o != any(p) {
			return fmt.Sprintf("the store holds %v", o)
		}
	}
	for _, k := range gone {
		if _, ok, _ := w.store.GetByKey(k); ok {
			return "the store still holds it"
		}
	}
	return ""
}

// take takes in an event, and then waits at the gate if there is one.
func (w *witness) take(what string, initial bool, judge func() string) {
	w.mu.Lock()
	complaint := ""
	switch {
	case w.removed:
		complaint = "it has been removed"
	case w.inside != "":
		complaint = "it has not returned from " + w.inside
	default:
		complaint = judge()
	}
	if complaint != "" && w.wrong == "" {
		w.wrong = fmt.Sprintf("%s is told %q: %s", w.name, what, complaint)
	}
	w.inside = what
	gate := w.gate
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside = ""; initial && w.wrong == "" && w.synced != nil && w.synced() {
		w.wrong = w.name + " synced before it had returned from " + what
	}
}

// verdict is what was wrong about what it has been told, if anything.
func (w *witness) verdict() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != "" || w.synced == nil || !w.synced() || w.removed {
		return w.wrong
	}
	initial := w.initial
	if w.initial == nil {
		initial = state{}
	}
	if w.begin != nil && !maps.Equal(initial, w.begin) {
		return fmt.Sprintf("%s was told the initial list %v, and the store held %v", w.name, initial, w.begin)
	}
	if !w.server.was(initial) {
		return fmt.Sprintf("%s was told the initial list %v, which there never was", w.name, initial)
	}
	return ""
}

// state is what it knows, under the lock.
func (w *witness) state() state {
	s := state{}
	for k, p := range w.known {
		s[k] = identity(p)
	}
	return s
}

func (w *witness) knows() state {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state()
}

func (w *witness) resynced() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.again
}

func (w *witness) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inside != ""
}

// awake says that nothing holds it up.
func (w *witness) awake() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.gate == nil
}

// leave says that it must be told nothing more.
func (w *witness) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removed = true
}

func (w *witness) block() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate == nil {
		w.gate = make(chan struct{})
	}
}

func (w *witness) unblock() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gate != nil {
		close(w.gate)
		w.gate = nil
	}
}
