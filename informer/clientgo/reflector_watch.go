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

// watch follows stream, or one it opens, and opens the next where one ended in
// good order. It returns nil where a list is needed, and an error where a watch
// could not be opened. failed ends it too.
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
		// A stream from no version, or from 0, begins with everything there is,
		// in no order of versions: none of them may be gone on from until a
		// change shows that they are through.
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
				if !busy(err) {
					return err
				}
				log.V(4).Info("Watch failed - backing off", "reflector", r.name, "type", r.description, "err", err)
				r.erred(err)
				stream = nil
				if !r.backOff(ctx) {
					return nil
				}
				continue
			}
			r.watching(native.Watching)
		}
		f := feed{r: r, stream: stream, store: r.store, start: start, failed: failed}
		f.seen = func(version string, past bool) {
			if inOrder || past {
				r.seen(version)
			}
		}
		err := f.run(ctx)
		stream.Stop()
		stream = nil
		retry.After(err)
		if err != nil && !errors.Is(err, errStopped) {
			r.erred(err)
		}
		switch {
		case err == nil:
		case errors.Is(err, errStopped):
			return nil
		case expired(err):
			// The list that follows asks for what is at least as new as the
			// last version: that version is still good for lists.
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

// feed carries the events of one stream into a store.
type feed struct {
	r      *reflector
	stream watch.Interface
	store  cache.ReflectorStore
	start  time.Time
	failed <-chan error
	inlet  *inlet // the store, if it is the engine's
	// seen is told the version of the last event, and whether the initial events,
	// if there were any, are certainly through.
	seen func(version string, past bool)
	// initial stops at the end of the initial events, which must come.
	initial bool

	events  int
	version string // of the last event
	fresh   bool   // and seen has not been told it
	past    bool
	ended   bool // the initial events have
}

// run returns when the stream ends: nil if that was in good order, or with
// initial, if the initial events ended. It does not stop the stream.
func (f *feed) run(ctx context.Context) error {
	var silence <-chan time.Time
	if f.initial {
		timer := f.r.clock.NewTimer(bookmarkPatience)
		defer timer.Stop()
		silence = timer.C()
	}
	f.inlet, _ = f.store.(*inlet)
	heard, events := f.r.clock.Now(), f.stream.ResultChan()
	for {
		select {
		case <-ctx.Done():
			return errStopped
		case err := <-f.failed:
			return err
		case <-silence:
			quiet := f.r.clock.Since(heard)
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
			heard = f.r.clock.Now()
			f.r.contact.Store(heard.UnixNano())
			if f.initial {
				f.r.received.Store(int64(f.events))
			}
		}
	}
}

// maxBurst is how many events are taken without looking whether to stop.
const maxBurst = 256

// burst takes an event, and those that have come after it meanwhile. It returns
// true when run is to return.
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

// flush hands on what has been taken.
func (f *feed) flush() {
	if f.inlet != nil {
		f.inlet.flush()
	}
	if f.fresh {
		f.fresh = false
		f.seen(f.version, f.past)
	}
}

// closed says what the end of the stream means.
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

// take hands an event on to the store. What cannot be understood or stored is
// reported and left out.
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
		f.past = true
		err, failure = f.store.Update(event.Object), "Unable to update watch event object to store"
	case watch.Deleted:
		f.past = true
		err, failure = f.store.Delete(event.Object), "Unable to delete watch event object from store"
	case watch.Bookmark:
		f.past = true
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
	f.version, f.fresh = version, true
	if f.inlet == nil {
		f.flush()
	}
	f.events++
}

// isTable says that a server sent rows for people to read, not objects.
func isTable(gvk schema.GroupVersionKind) bool {
	return gvk == metav1.SchemeGroupVersion.WithKind("Table") || gvk == metav1beta1.SchemeGroupVersion.WithKind("Table")
}
