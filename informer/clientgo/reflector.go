package clientgo

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/naming"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	native "github.com/tidings-io/tidings/internal/reflector"
)

// The timing of client-go's reflector.go.
const (
	minWatchTimeout = 5 * time.Minute
	backoffInit     = 800 * time.Millisecond
	backoffMax      = 30 * time.Second
	backoffReset    = 2 * time.Minute
	veryShortWatch  = time.Second
	// MaxInternalErrorRetryDuration starts again after this long without internal
	// errors.
	internalErrorsReset = time.Minute
	// bookmarkPatience is how long a WatchList stream may bring nothing before the
	// reflector lists instead: servers that do not know sendInitialEvents ignore it
	// and never end the initial events. client-go waits for ever.
	bookmarkPatience = 30 * time.Second
)

// reflector drives a ListerWatcher by the rules of client-go's reflector.go: which
// version to request, when to list again rather than watch, which errors go to the
// error handler, and how long to wait. It differs where those rules let client-go spin
// or hang: see watchList.
//
// It is not internal/reflector, whose own rules need fewer lists. Users with a
// ListerWatcher of their own, fake clients and tests rely on client-go's rules.
type reflector struct {
	native.Tracker
	name        string
	description string
	lw          cache.ListerWatcherWithContext
	store       cache.ReflectorStore
	wantType    reflect.Type             // nil for any
	wantGVK     *schema.GroupVersionKind // nil for any
	clock       clock.Clock
	delay       wait.DelayFunc
	// upstream is passed to error handlers, which take client-go's concrete type.
	// Only its names are used.
	upstream *cache.Reflector
	onError  cache.WatchErrorHandlerWithContext

	resyncPeriod                  time.Duration
	minTimeout, maxTimeout        time.Duration
	ShouldResync                  func() bool
	WatchListPageSize             int64
	MaxInternalErrorRetryDuration time.Duration
	useWatchList                  bool

	mu          sync.Mutex
	version     string // the last one seen: a watch starts after it
	unavailable bool   // the server no longer knows that version, or not yet
	paginated   bool   // the server has no watch cache: it answered a list at version 0 in pages

	denied   bool         // the last error was 401 or 403; only RunWithContext's goroutine uses it
	contact  atomic.Int64 // when the server last sent anything, in Unix nanoseconds
	received atomic.Int64 // objects of the list in progress
}

// internalFiles are skipped when a reflector is named after its caller.
var internalFiles = []string{"client-go/tools/cache/", "informer/clientgo/reflector.go", "informer/clientgo/shared.go", "informer/clientgo/controller.go"}

func newReflectorWithOptions(lw cache.ListerWatcher, example any, store cache.ReflectorStore, opts cache.ReflectorOptions) *reflector {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Name == "" {
		opts.Name = naming.GetNameFromCallsite(internalFiles...)
	}
	if opts.Backoff == nil {
		opts.Backoff = &wait.Backoff{
			Duration: backoffInit, Cap: backoffMax, Factor: 2, Jitter: 1,
			Steps: int(backoffMax/backoffInit) + 1,
		}
	}
	upstream := cache.NewReflectorWithOptions(lw, example, nil, opts)
	r := &reflector{
		name:         opts.Name,
		description:  upstream.TypeDescription(),
		lw:           cache.ToListerWatcherWithContext(lw),
		store:        store,
		wantType:     reflect.TypeOf(example),
		clock:        opts.Clock,
		upstream:     upstream,
		onError:      cache.DefaultWatchErrorHandler,
		resyncPeriod: opts.ResyncPeriod,
		minTimeout:   max(minWatchTimeout, opts.MinWatchTimeout),
		useWatchList: clientfeatures.FeatureGates().Enabled(clientfeatures.WatchListClient) && !watchlist.DoesClientNotSupportWatchListSemantics(lw),
	}
	delay := opts.Backoff.DelayWithReset(opts.Clock, backoffReset)
	r.delay = func() time.Duration {
		wait := delay()
		r.noteWait(wait)
		return wait
	}
	r.maxTimeout = 2 * r.minTimeout
	if u, ok := example.(*unstructured.Unstructured); ok {
		if gvk := u.GroupVersionKind(); !gvk.Empty() {
			r.wantGVK = &gvk
		}
	}
	return r
}

// RunWithContext lists and watches until ctx ends.
func (r *reflector) RunWithContext(ctx context.Context) {
	log := klog.FromContext(ctx)
	log.V(3).Info("Starting reflector", "type", r.description, "resyncPeriod", r.resyncPeriod, "reflector", r.name)
	defer r.Update(func(s *native.Status) { s.Phase = native.Stopped })
	_ = r.delay.Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		if err := r.ListAndWatchWithContext(ctx); err != nil {
			r.noteError(err)
			r.onError(ctx, r.upstream, err)
		}
		return false, nil
	})
	log.V(3).Info("Stopping reflector", "type", r.description, "resyncPeriod", r.resyncPeriod, "reflector", r.name)
}

// ListAndWatchWithContext lists, then watches until a watch cannot be resumed. It
// returns an error if no watch began. A watch that began and broke is no error.
func (r *reflector) ListAndWatchWithContext(ctx context.Context) error {
	log := klog.FromContext(ctx)
	log.V(3).Info("Listing and watching", "type", r.description, "reflector", r.name)
	r.received.Store(0)
	r.Update(func(s *native.Status) { s.Phase, s.Expected = native.Listing, -1 })
	var stream watch.Interface
	if r.useWatchList {
		var err error
		stream, err = r.watchList(ctx)
		if err != nil {
			log.V(4).Info("No initial events from the watch; listing instead", "reflector", r.name, "type", r.description, "err", err)
			stream = nil
		} else if stream == nil {
			return nil // stopped
		}
	}
	if stream == nil {
		if err := r.list(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	log.V(2).Info("Caches populated", "type", r.description, "reflector", r.name)

	ticking, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	var ticker sync.WaitGroup
	ticker.Go(func() { r.tick(ticking, failed) })
	defer func() {
		stop()
		ticker.Wait()
	}()
	return r.watch(ctx, stream, failed)
}

// tick resyncs the store once per resyncPeriod, if ShouldResync agrees.
func (r *reflector) tick(ctx context.Context, failed chan<- error) {
	if r.resyncPeriod == 0 {
		return
	}
	for {
		timer := r.clock.NewTimer(r.resyncPeriod)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if r.ShouldResync != nil && !r.ShouldResync() {
			continue
		}
		klog.FromContext(ctx).V(4).Info("Forcing resync", "reflector", r.name)
		if err := r.store.Resync(); err != nil {
			failed <- err
			return
		}
	}
}

// timeout returns the timeout to request for a watch, in seconds.
func (r *reflector) timeout() *int64 {
	seconds := int64((r.minTimeout + rand.N(r.maxTimeout-r.minTimeout+1)).Seconds())
	return &seconds
}

// backOff waits. It returns false if ctx ends first.
func (r *reflector) backOff(ctx context.Context) bool {
	select {
	case <-r.clock.After(r.delay()):
		return true
	case <-ctx.Done():
		return false
	}
}

// noteWait notes that the reflector waits because of the last error.
func (r *reflector) noteWait(delay time.Duration) {
	phase := native.Waiting
	if r.denied {
		phase = native.Denied
	}
	r.Update(func(s *native.Status) { s.Phase, s.Retry = phase, time.Now().Add(delay) })
}

// noteError notes a failed request.
func (r *reflector) noteError(err error) {
	r.denied = apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	r.Update(func(s *native.Status) { s.Err, s.ErrTime = err, time.Now(); s.Errors++ })
}

// noteWatch notes that a stream has been opened.
func (r *reflector) noteWatch(phase native.Phase) {
	r.Update(func(s *native.Status) { s.Phase = phase; s.Watches++ })
}

// setVersion is advance for a version that the store knows already.
func (r *reflector) setVersion(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
}

// noteList notes a complete list at a version.
func (r *reflector) noteList(version string, objects int) {
	r.setVersion(version)
	r.contact.Store(r.clock.Now().UnixNano())
	r.Update(func(s *native.Status) {
		s.Phase, s.ResourceVersion = native.Watching, version
		s.Received, s.Expected = int64(objects), int64(objects)
		s.Lists++
	})
}

// LastSyncResourceVersion returns the last version seen.
func (r *reflector) LastSyncResourceVersion() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// advance sets the version after which the next watch starts.
func (r *reflector) advance(version string) {
	r.mu.Lock()
	r.version = version
	r.mu.Unlock()
	if u, ok := r.store.(cache.ResourceVersionUpdater); ok {
		u.UpdateResourceVersion(version)
	}
}

// setUnavailable notes whether the server lacks the last version.
func (r *reflector) setUnavailable(unavailable bool) {
	r.mu.Lock()
	r.unavailable = unavailable
	r.mu.Unlock()
}

// startVersion returns the version for a list or a WatchList stream: the last one, or
// none if the server does not know it, or first if there is none yet. A first list
// may be served from the server's watch cache.
func (r *reflector) startVersion(first string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.unavailable:
		return ""
	case r.version == "":
		return first
	}
	return r.version
}

// errStopped ends a watch when ctx does.
var errStopped = errors.New("stop requested")

func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge reports whether the server does not know the requested version yet. Servers
// before 1.19 only say so in the message.
func tooLarge(err error) bool {
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true
	}
	var answer apierrors.APIStatus
	if !apierrors.IsTimeout(err) || !errors.As(err, &answer) || answer.Status().Details == nil {
		return false
	}
	status := answer.Status()
	return strings.Contains(status.Message, tooLargeMessage) || slices.ContainsFunc(status.Details.Causes, func(cause metav1.StatusCause) bool {
		return cause.Message == tooLargeMessage
	})
}

const tooLargeMessage = "Too large resource version"

// retryable reports whether the same request may soon succeed.
func retryable(err error) bool {
	return utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err)
}
