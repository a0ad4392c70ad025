package clientgo

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/subscriber"
)

// Observed is the state of an informer or a controller of this package, which
// client-go's interfaces have no methods for. Both methods are safe for
// concurrent use.
type Observed interface {
	// Status returns the current state. It differs from that of the library's own
	// informers: a ListerWatcher does not say what it lists, so Cluster and
	// Namespace are empty, and Resource is that of the identifier in the options
	// or else the usual one for the type of the objects. Bytes is 0. Phase is
	// never Gone or Refused, because these informers keep their objects and
	// retry forever, as client-go's do. Handlers are named by their functions or
	// their type.
	Status() informer.Status
	// StatusChanged returns a channel that is closed when the informer starts or
	// ends, or when its Phase, LastError or Lists change.
	StatusChanged() <-chan struct{}
}

// Observe returns the state of an informer or a controller: phase, last error,
// version, objects, and the backlog of each handler.
//
//	if state, ok := clientgo.Observe(inf); ok {
//		registry.MustRegister(metrics.NewCollector(metrics.Of(state)))
//	}
//
// It returns false for those of other packages. It sees through the wrapper of
// cache.NewTypedSharedIndexInformer.
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
		inner := v.FieldByName("SharedIndexInformer") // the field of the wrapper
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

// Status implements [Observed].
func (s *sharedIndexInformer) Status() informer.Status {
	s.mu.Lock()
	r, listeners := s.reflector, slices.Clone(s.listeners)
	s.mu.Unlock()
	out := newStatus(s.metrics.id, s.example, s.description, s.HasSynced())
	setStoreStatus(&out, s.store)
	for _, l := range listeners {
		h := l.status()
		out.Handlers = append(out.Handlers, h)
		out.Lag = max(out.Lag, h.Lag)
	}
	r.setStatus(&out)
	return out
}

// StatusChanged implements [Observed].
func (s *sharedIndexInformer) StatusChanged() <-chan struct{} { return s.statusChange.Next() }

// Status implements [Observed]. If queue and store are the caller's, it has
// nothing about the store.
func (c *controller) Status() informer.Status {
	c.mu.Lock()
	r := c.reflector
	c.mu.Unlock()
	out := newStatus(c.id, c.example, c.options.TypeDescription, c.HasSynced())
	if c.loop != nil {
		setStoreStatus(&out, c.loop.store)
		h := c.loop.status()
		out.Handlers, out.Lag = []informer.HandlerStatus{h}, h.Lag
	}
	r.setStatus(&out)
	return out
}

// status returns the status of the handler. Its backlog includes deltas that
// the store has not applied yet.
func (l *processLoop) status() informer.HandlerStatus {
	s := l.subscriber.Status()
	s.Synced = cache.IsDone(doneChecker{done: l.synced})
	s.Backlog += uint64(l.queue.Len()) + uint64(l.waiting.Load())
	return handlerStatus(l.handler, s, 0)
}

// status returns the status of the handler.
func (l *listener) status() informer.HandlerStatus {
	out := handlerStatus(l.handler, l.subscriber.Status(), l.undelivered.Load())
	if out.Panics = l.panics.Load(); out.Panics > 0 {
		out.LastPanic = *l.lastPanic.Load()
	}
	return out
}

// handlerStatus returns the status of a handler. undelivered is the number of
// events that the subscriber counts as delivered and the handler did not get.
func handlerStatus(h cache.ResourceEventHandler, s subscriber.Status, undelivered uint64) informer.HandlerStatus {
	if s.Synced {
		undelivered++ // the Synced event
	}
	return informer.HandlerStatus{
		Name: handlerName(h), Delivered: s.Delivered - min(undelivered, s.Delivered),
		Lag: s.Lag, Backlog: s.Backlog, BacklogSince: s.Since, Synced: s.Synced,
	}
}

// StatusChanged implements [Observed].
func (c *controller) StatusChanged() <-chan struct{} { return c.statusChange.Next() }

func newStatus(id cache.InformerNameAndResource, example runtime.Object, description string, synced bool) informer.Status {
	return informer.Status{Resource: resourceOf(id, example, description), Phase: informer.Stopped, Synced: synced, Expected: -1}
}

// setStoreStatus sets the part of out that the store knows.
func setStoreStatus(out *informer.Status, s *store) {
	stats := s.ix.Stats()
	out.Objects, out.Events, out.ResourceVersion = stats.Objects, stats.Events, s.LastStoreSyncResourceVersion()
}

// resourceOf returns the resource that is listed, as far as it is known.
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

// setStatus sets the part of out that the reflector knows. r may be nil.
func (r *reflector) setStatus(out *informer.Status) {
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
