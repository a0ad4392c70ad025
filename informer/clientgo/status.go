package clientgo

import (
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/processor"
)

// Observed is what an informer or a controller of this package can be asked that
// client-go's interfaces have no method for. Both methods may be called at any
// time.
type Observed interface {
	// Status is the state at this moment. It differs from that of the library's
	// own informers in this: a ListerWatcher does not say what it lists, so
	// Cluster and Namespace are empty, and Resource is that of the identifier in
	// the options or else the usual one for the type of the objects; there is
	// no Bytes; Phase is never Gone or Refused, as informers of client-go's kind
	// wait for ever and keep what they have. Handlers are named by the functions
	// or the type they are of.
	Status() informer.Status
	// StatusChanged returns a channel that is closed when the informer starts or
	// ends, or its Phase, LastError or Lists change.
	StatusChanged() <-chan struct{}
}

// Observe makes the state of an informer or a controller visible: phase, last
// error, version, objects, and what each handler has not been told yet.
//
//	if state, ok := clientgo.Observe(inf); ok {
//		registry.MustRegister(metrics.NewCollector(metrics.Of(state)))
//	}
//
// It returns false if it is not of this package. What
// cache.NewTypedSharedIndexInformer has wrapped is found.
func Observe(of interface{ LastSyncResourceVersion() string }) (Observed, bool) {
	for {
		switch one := of.(type) {
		case Observed:
			return one, true
		case idleController:
			return one.s, true
		}
		v := reflect.Indirect(reflect.ValueOf(of))
		if v.Kind() != reflect.Struct {
			return nil, false
		}
		inner := v.FieldByName("SharedIndexInformer") // of the wrapper
		if !inner.IsValid() || !inner.CanInterface() {
			return nil, false
		}
		next, ok := inner.Interface().(cache.SharedIndexInformer)
		if !ok {
			return nil, false
		}
		of = next
	}
}

var (
	_ Observed = &sharedIndexInformer{}
	_ Observed = &controller{}
)

// news is a channel that is closed and renewed when there is news. The zero value
// is usable.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) announce() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// Status implements [Observed].
func (s *sharedIndexInformer) Status() informer.Status {
	s.mu.Lock()
	r, listeners := s.reflector, append([]*listener(nil), s.listeners...)
	s.mu.Unlock()
	out := newStatus(s.metrics.id, s.example, s.description, s.HasSynced())
	include(&out, s.store)
	for _, l := range listeners {
		h := l.status()
		out.Handlers = append(out.Handlers, h)
		out.Lag = max(out.Lag, h.Lag)
	}
	r.describe(&out)
	return out
}

// StatusChanged implements [Observed].
func (s *sharedIndexInformer) StatusChanged() <-chan struct{} { return s.news.changed() }

// Status implements [Observed]. Of a controller with a queue and a store of the
// caller's own the store is not known.
func (c *controller) Status() informer.Status {
	c.mu.Lock()
	r := c.reflector
	c.mu.Unlock()
	out := newStatus(c.id, c.example, c.options.TypeDescription, c.HasSynced())
	if c.loop != nil {
		include(&out, c.loop.store)
		h := c.loop.status()
		out.Handlers, out.Lag = []informer.HandlerStatus{h}, h.Lag
	}
	r.describe(&out)
	return out
}

// status is what there is to know about the one handler. What waits for the store
// waits for it, too.
func (l *loop) status() informer.HandlerStatus {
	s := l.follower.Status()
	s.Synced = cache.IsDone(checker{done: l.synced})
	s.Backlog += uint64(l.queue.Len()) + uint64(l.waiting.Load())
	return handlerStatus(l.handler, s, 0)
}

// status is what there is to know about the handler.
func (l *listener) status() informer.HandlerStatus {
	out := handlerStatus(l.handler, l.follower.Status(), l.untold.Load())
	if out.Panics = l.panics.Load(); out.Panics > 0 {
		out.LastPanic = *l.lastPanic.Load()
	}
	return out
}

// handlerStatus is the status of a handler that was not told some of what its
// follower counts.
func handlerStatus(h cache.ResourceEventHandler, s processor.Status, untold uint64) informer.HandlerStatus {
	if s.Synced {
		untold++ // of that it is not told either
	}
	return informer.HandlerStatus{
		Name: handlerName(h), Delivered: s.Delivered - min(untold, s.Delivered),
		Lag: s.Lag, Backlog: s.Backlog, Synced: s.Synced,
	}
}

// StatusChanged implements [Observed].
func (c *controller) StatusChanged() <-chan struct{} { return c.news.changed() }

func newStatus(id cache.InformerNameAndResource, example runtime.Object, description string, synced bool) informer.Status {
	return informer.Status{Resource: resourceOf(id, example, description), Phase: informer.Stopped, Synced: synced, Expected: -1}
}

// include takes in the state of a store.
func include(out *informer.Status, s *store) {
	stats := s.ix.Stats()
	out.Objects, out.Events, out.ResourceVersion = stats.Objects, stats.Events, s.LastStoreSyncResourceVersion()
}

// resourceOf says what is listed, as well as can be known.
func resourceOf(id cache.InformerNameAndResource, example runtime.Object, description string) schema.GroupVersionResource {
	if resource := id.GroupVersionResource(); !resource.Empty() {
		return resource
	}
	if example == nil {
		return schema.GroupVersionResource{Resource: description}
	}
	kind := example.GetObjectKind().GroupVersionKind()
	if kinds, _, err := scheme.Scheme.ObjectKinds(example); err == nil {
		kind = kinds[0]
	}
	if kind.Empty() {
		if description == "" {
			description = reflect.TypeOf(example).String()
		}
		return schema.GroupVersionResource{Resource: description}
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}

// describe takes in the state of a reflector, which may not have been made yet.
func (r *reflector) describe(out *informer.Status) {
	if r == nil {
		return
	}
	s := r.Status()
	out.Phase, out.Since, out.Retry = informer.Phase(s.Phase.String()), s.Since, s.Retry
	out.LastError, out.LastErrorTime = s.Err, s.ErrTime
	out.Lists, out.Watches, out.Errors = s.Lists, s.Watches, s.Errors
	out.Received, out.Expected = s.Received, s.Expected
	if out.Phase == informer.Listing {
		out.Received = r.received.Load()
	}
	if contact := r.contact.Load(); contact != 0 {
		out.LastContact = time.Unix(0, contact)
	}
}
