package clientgo_test

import (
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// modelHandler is a handler that keeps the state its events lead to, and checks
// each event against it.
type modelHandler struct {
	name         string
	ours         bool
	server       *flakyServer
	wantResyncs  bool        // it should get resyncs
	initialStore state       // the store when the handler was added; nil before the first list
	store        cache.Store // nil: it may be ahead of the handler
	registration cache.ResourceEventHandlerRegistration

	mu       sync.Mutex
	synced   func() bool
	gate     chan struct{} // blocks the handler; nil if not blocked
	known    map[string]*corev1.Pod
	gone     map[string]string // the last deletion of each key
	initial  state             // from the initial list
	inCall   string            // the event it has not returned from
	resynced int               // number of resync events
	removed  bool
	wrong    string // the first failure
}

func (h *modelHandler) OnAdd(obj any, initial bool) {
	p := obj.(*corev1.Pod)
	h.handle("add "+describe(p), initial, func() string {
		if have := h.known[key(p)]; have != nil {
			return "it knows " + describe(have)
		}
		// client-go may deliver the next event before a handler reports that it
		// has synced.
		if synced := h.synced != nil && h.synced(); initial && synced || h.ours && !initial && !synced {
			return fmt.Sprintf("it has synced: %t, and this is of the initial list: %t", synced, initial)
		}
		if h.known[key(p)] = p; initial {
			if h.initial == nil {
				h.initial = state{}
			}
			h.initial[key(p)] = identity(p)
		}
		return h.storeError(p)
	})
}

func (h *modelHandler) OnUpdate(old, obj any) {
	was, p := old.(*corev1.Pod), obj.(*corev1.Pod)
	h.handle("update "+describe(was)+" > "+describe(p), false, func() string {
		have := h.known[key(p)]
		if have == nil || key(was) != key(p) || identity(have) != identity(was) {
			return fmt.Sprintf("it knows %v", h.stateLocked())
		}
		if was == p {
			if h.resynced++; !h.wantResyncs {
				return "it has not asked for resyncs"
			}
		}
		if v, now := number(was.ResourceVersion), number(p.ResourceVersion); was.UID == p.UID && now < v && h.server.epochs() == 1 {
			return "it goes back"
		}
		h.known[key(p)] = p
		return h.storeError(p)
	})
}

func (h *modelHandler) OnDelete(obj any) {
	unseen, isUnseen := obj.(cache.DeletedFinalStateUnknown)
	if isUnseen {
		obj = unseen.Obj
	}
	p := obj.(*corev1.Pod)
	h.handle("delete "+describe(p), false, func() string {
		have := h.known[key(p)]
		switch {
		case have == nil && !isUnseen && h.gone[key(p)] == identity(p): // the source said so twice
		case have == nil || have.UID != p.UID:
			return fmt.Sprintf("it knows %v", h.stateLocked())
		case isUnseen && (unseen.Key != key(p) || identity(have) != identity(p)):
			return "the tombstone is not of what it knows, " + describe(have)
		case !isUnseen && number(p.ResourceVersion) <= number(have.ResourceVersion):
			return "it knows " + describe(have)
		}
		if h.gone == nil {
			h.gone = map[string]string{}
		}
		h.gone[key(p)] = identity(p)
		delete(h.known, key(p))
		return h.storeError(nil, key(p))
	})
}

func describe(p *corev1.Pod) string { return key(p) + "=" + identity(p) }

// storeError returns what is wrong with the store of a controller, which waits
// for its handler: it must hold the object of the event, and nothing later.
func (h *modelHandler) storeError(p *corev1.Pod, gone ...string) string {
	if h.store == nil {
		return ""
	}
	if p != nil {
		if o, ok, _ := h.store.GetByKey(key(p)); !ok || o != any(p) {
			return fmt.Sprintf("the store holds %v", o)
		}
	}
	for _, k := range gone {
		if _, ok, _ := h.store.GetByKey(k); ok {
			return "the store still holds it"
		}
	}
	return ""
}

// handle checks an event, and then waits while the handler is blocked.
func (h *modelHandler) handle(what string, initial bool, check func() string) {
	h.mu.Lock()
	problem := ""
	switch {
	case h.removed:
		problem = "it has been removed"
	case h.inCall != "":
		problem = "it has not returned from " + h.inCall
	default:
		problem = check()
	}
	if problem != "" && h.wrong == "" {
		h.wrong = fmt.Sprintf("%s got %q: %s", h.name, what, problem)
	}
	h.inCall = what
	gate := h.gate
	h.mu.Unlock()
	if gate != nil {
		<-gate
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.inCall = ""; initial && h.wrong == "" && h.synced != nil && h.synced() {
		h.wrong = h.name + " synced before it had returned from " + what
	}
}

// failure returns the first failure, if any.
func (h *modelHandler) failure() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong != "" || h.synced == nil || !h.synced() || h.removed {
		return h.wrong
	}
	initial := h.initial
	if h.initial == nil {
		initial = state{}
	}
	if h.initialStore != nil && !maps.Equal(initial, h.initialStore) {
		return fmt.Sprintf("%s got the initial list %v, but the store held %v", h.name, initial, h.initialStore)
	}
	if !h.server.was(initial) {
		return fmt.Sprintf("%s got the initial list %v, which never existed", h.name, initial)
	}
	return ""
}

// stateLocked returns the state of the handler. The caller holds the lock.
func (h *modelHandler) stateLocked() state {
	s := state{}
	for k, p := range h.known {
		s[k] = identity(p)
	}
	return s
}

func (h *modelHandler) state() state {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stateLocked()
}

func (h *modelHandler) resyncCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resynced
}

func (h *modelHandler) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inCall != ""
}

// blocked reports whether the handler is blocked.
func (h *modelHandler) blocked() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gate != nil
}

// markRemoved makes every further event a failure.
func (h *modelHandler) markRemoved() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removed = true
}

func (h *modelHandler) block() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate == nil {
		h.gate = make(chan struct{})
	}
}

func (h *modelHandler) unblock() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
	}
}
