package clientgo

import (
	"context"
	"errors"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	native "github.com/tidings-io/tidings/internal/reflector"
)

// watch follows stream, or one it opens, and opens another after one that ended in
// good order. It returns nil if a list is needed, and an error if a watch could not be
// opened. An error from failed ends it as well.
func (r *reflector) watch(ctx context.Context, stream watch.Interface, failed <-chan error) error {
	log := klog.FromContext(ctx)
	retry := cache.NewRetryWithDeadline(r.MaxInternalErrorRetryDuration, internalErrorsReset, apierrors.IsInternalError, r.clock)
	for {
		if ctx.Err() != nil {
			if stream != nil {
				stream.Stop()
			}
			return nil
		}
		start := r.clock.Now()
		// A stream from no version, or from 0, begins with all objects, in no order
		// of versions. No watch may start after one of these versions until a change
		// shows that all objects have been sent.
		inOrder := true
		if stream == nil {
			opts := metav1.ListOptions{
				ResourceVersion:     r.LastSyncResourceVersion(),
				AllowWatchBookmarks: true,
				TimeoutSeconds:      r.timeout(),
			}
			inOrder = opts.ResourceVersion != "" && opts.ResourceVersion != "0"
			var err error
			stream, err = r.lw.WatchWithContext(ctx, opts)
			if err != nil {
				if !retryable(err) {
					return err
				}
				log.V(4).Info("Watch failed - backing off", "reflector", r.name, "type", r.description, "err", err)
				r.noteError(err)
				stream = nil
				if !r.backOff(ctx) {
					return nil
				}
				continue
			}
			r.noteWatch(native.Watching)
		}
		f := feed{r: r, stream: stream, store: r.store, start: start, failed: failed}
		f.advance = func(version string, ended bool) {
			if inOrder || ended {
				r.advance(version)
			}
		}
		err := f.run(ctx)
		stream.Stop()
		stream = nil
		retry.After(err)
		if err != nil && !errors.Is(err, errStopped) {
			r.noteError(err)
		}
		switch {
		case err == nil:
		case errors.Is(err, errStopped):
			return nil
		case expired(err):
			// The next list requests a state not older than the last version. That
			// version is still good for lists.
			log.V(4).Info("Watch closed", "reflector", r.name, "type", r.description, "err", err)
			return nil
		case apierrors.IsTooManyRequests(err):
			log.V(2).Info("Watch returned 429 - backing off", "reflector", r.name, "type", r.description)
			if !r.backOff(ctx) {
				return nil
			}
		case apierrors.IsInternalError(err) && retry.ShouldRetry():
			log.V(2).Info("Retrying watch after internal error", "reflector", r.name, "type", r.description, "err", err)
		default:
			log.Info("Warning: watch ended with error", "reflector", r.name, "type", r.description, "err", err)
			return nil
		}
	}
}

// feed applies the events of one stream to a store.
type feed struct {
	r      *reflector
	stream watch.Interface
	store  cache.ReflectorStore
	start  time.Time
	failed <-chan error
	queue  *queueStore // store, if it is the engine's
	// advance is called with the version of the last event. ended reports whether the
	// initial events have certainly ended, or there were none.
	advance func(version string, ended bool)
	// initial makes run return at the end of the initial events.
	initial bool

	events  int
	version string // of the last event
	pending bool   // advance has not been called with version
	changed bool   // the initial events have ended, or a change shows that they have
	ended   bool   // the bookmark after the initial events has come
}

// run returns when the stream ends. It returns nil if the stream ended in good order or,
// with initial, if the initial events ended. It does not stop the stream.
func (f *feed) run(ctx context.Context) error {
	var silence <-chan time.Time
	if f.initial {
		timer := f.r.clock.NewTimer(bookmarkPatience)
		defer timer.Stop()
		silence = timer.C()
	}
	f.queue, _ = f.store.(*queueStore)
	last, events := f.r.clock.Now(), f.stream.ResultChan()
	for {
		select {
		case <-ctx.Done():
			return errStopped
		case err := <-f.failed:
			return err
		case <-silence:
			quiet := f.r.clock.Since(last)
			if quiet >= bookmarkPatience {
				return errNoBookmark
			}
			timer := f.r.clock.NewTimer(bookmarkPatience - quiet)
			defer timer.Stop()
			silence = timer.C()
		case event, ok := <-events:
			over, err := f.burst(ctx, event, ok, events)
			f.flush()
			if over {
				return err
			}
			last = f.r.clock.Now()
			f.r.contact.Store(last.UnixNano())
			if f.initial {
				f.r.received.Store(int64(f.events))
			}
		}
	}
}

// maxBurst is how many events are taken without checking whether to stop.
const maxBurst = 256

// burst takes an event and those that are ready after it. It returns true if run must
// return.
func (f *feed) burst(ctx context.Context, event watch.Event, ok bool, events <-chan watch.Event) (over bool, err error) {
	for n := 0; ; {
		if !ok {
			return true, f.closed(ctx)
		}
		if event.Type == watch.Error {
			return true, apierrors.FromObject(event.Object)
		}
		f.take(ctx, event)
		if f.initial && f.ended {
			klog.FromContext(ctx).V(4).Info("Initial events received", "reflector", f.r.name, "events", f.events, "duration", f.r.clock.Since(f.start))
			return true, nil
		}
		if n++; n == maxBurst {
			return false, nil
		}
		select {
		case event, ok = <-events:
			continue
		default:
		}
		return false, nil
	}
}

// flush delivers the events taken.
func (f *feed) flush() {
	if f.queue != nil {
		f.queue.flush()
	}
	if f.pending {
		f.pending = false
		f.advance(f.version, f.changed)
	}
}

// closed returns the error for the end of the stream.
func (f *feed) closed(ctx context.Context) error {
	if f.r.clock.Since(f.start) < veryShortWatch && f.events == 0 {
		return &cache.VeryShortWatchError{Name: f.r.name}
	}
	klog.FromContext(ctx).V(4).Info("Watch close", "reflector", f.r.name, "type", f.r.description, "totalItems", f.events)
	if f.initial {
		return errCutShort
	}
	return nil
}

// take applies an event to the store. It reports and skips events that it cannot
// understand or store.
func (f *feed) take(ctx context.Context, event watch.Event) {
	r := f.r
	if got := reflect.TypeOf(event.Object); r.wantType != nil && got != r.wantType {
		utilruntime.HandleErrorWithContext(ctx, nil, "Unexpected watch event object type", "reflector", r.name, "expectedType", r.wantType, "actualType", got)
		return
	}
	if r.wantGVK != nil {
		if got := event.Object.GetObjectKind().GroupVersionKind(); got != *r.wantGVK {
			utilruntime.HandleErrorWithContext(ctx, nil, "Unexpected watch event object gvk", "reflector", r.name, "expectedGVK", *r.wantGVK, "actualGVK", got)
			return
		}
	}
	if u, ok := event.Object.(*unstructured.Unstructured); ok && isTable(u.GroupVersionKind()) {
		utilruntime.HandleErrorWithContext(ctx, nil, "Unsupported watch event object gvk", "reflector", r.name, "actualGVK", u.GroupVersionKind())
		return
	}
	object, err := meta.Accessor(event.Object)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Unable to understand watch event", "reflector", r.name, "event", event)
		return
	}
	version := object.GetResourceVersion()
	failure := ""
	switch event.Type {
	case watch.Added:
		err, failure = f.store.Add(event.Object), "Unable to add watch event object to store"
	case watch.Modified:
		f.changed = true
		err, failure = f.store.Update(event.Object), "Unable to update watch event object to store"
	case watch.Deleted:
		f.changed = true
		err, failure = f.store.Delete(event.Object), "Unable to delete watch event object from store"
	case watch.Bookmark:
		f.changed = true
		f.ended = f.ended || object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		if s, ok := f.store.(cache.ReflectorBookmarkStore); ok {
			err, failure = s.Bookmark(version), "Unable to send bookmark event to store"
		}
	default:
		utilruntime.HandleErrorWithContext(ctx, nil, "Unknown watch event", "reflector", r.name, "event", event)
	}
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, failure, "reflector", r.name, "object", event.Object)
	}
	f.version, f.pending = version, true
	if f.queue == nil {
		f.flush()
	}
	f.events++
}

// isTable reports whether the server sent a table for display instead of an object.
func isTable(gvk schema.GroupVersionKind) bool {
	return gvk == metav1.SchemeGroupVersion.WithKind("Table") || gvk == metav1beta1.SchemeGroupVersion.WithKind("Table")
}
