// Package reflector drives a source: it lists, watches from where the list ends,
// and recovers from errors. It decides what to request next and when. It keeps no
// objects.
//
// The protocol is a state machine. Each state is a type that owns its data, and
// each has a step method that returns the next state:
//
//	listing ───► streaming ─────► initial events end ───────────► watching
//	   │             │ refused, cut short, or no bookmark            ▲
//	   └─────────► paging ───────────► last page ────────────────────┘
//
// A step that fails also returns an error and the state to retry in. Reflector.fail
// decides what happens then: wait and retry, list again (410 Expired, version too
// large, undecodable object, restored cluster, resource not found), or end.
//
// Every failure is followed by a wait with exponential backoff and jitter, or by
// the server's Retry-After if that is longer. Two things are followed up at once:
// the end of a healthy watch, and the first 410 after one.
package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// Options of a reflector. The zero value is usable.
type Options struct {
	// PageSize is the limit of a paged list. 0 means 500, as in client-go. After a
	// page has failed, pages are not larger than that until a list is complete: a
	// large one may be too much for the server or the network.
	PageSize int64
	// PlainLists turns off WatchList streams, for sources without them and for
	// those that list at less cost.
	PlainLists bool
	// From starts with a watch after this resourceVersion, without a list.
	// A list follows if the server no longer knows it.
	From string
	// Scope is the namespace of lists and bookmarks, if the store's namespaces
	// are listed one by one.
	Scope string
	// Changed, if not nil, is called when the Phase, the Err or the Lists of the
	// status have changed. It must not block.
	Changed func()
	// Logger logs relists and errors. nil discards them.
	Logger *slog.Logger
}

const (
	defaultPageSize = 500
	// bookmarkPatience is how long a WatchList stream may bring nothing new
	// before the reflector gives up on its initial-events-end bookmark: servers
	// that do not know sendInitialEvents ignore it and never send one.
	bookmarkPatience = 10 * time.Second
	// initialLimit bounds a WatchList stream that keeps bringing events but never
	// the bookmark.
	initialLimit = 5 * time.Minute
	// minWatch is the shortest timeout requested for a watch. The actual one is
	// random, up to twice that, so that many watches do not end together.
	minWatch = 5 * time.Minute
	// overtime is how long the end of a watch may be overdue.
	overtime = 30 * time.Second
	// listPatience is how long a list may bring nothing. A kube-apiserver gives
	// up on a list after a minute, and says so.
	listPatience = 90 * time.Second
	// A watch that ends sooner than this, without an event, is a failure.
	shortWatch = time.Second
	// A watch that expires sooner than this after a list is followed by a wait.
	quickExpiry = 5 * time.Second
	// The backoff is reset after this long without an error.
	backoffReset = 2 * time.Minute
)

var (
	errNoBookmark = errors.New("the server did not mark the end of the initial events in time")
	errOverdue    = errors.New("the server did not end the watch in time")
	errStalled    = fmt.Errorf("the server has sent nothing for %v", listPatience)
	errShortWatch = errors.New("the server ended the watch at once, without an event")
)

// Reflector drives one source.
type Reflector[T object.Object] struct {
	Tracker
	target source.Target
	src    source.Source[T]
	queue  *delta.Queue[T]
	opts   Options
	log    *slog.Logger
	retry  chan struct{} // ends a wait; has room for one

	// What outlives a state. Only Run's goroutine uses it.
	granted bool      // the server has answered a list or watch
	listed  time.Time // when the last list was complete; zero if the resource has vanished since
	objects int       // in the last list
	failed  bool      // a page, since the last list
	backoff wait.Backoff
	retried time.Time // when the wait after the last failure was over
}

// New returns a reflector that pushes the objects and events of src to queue.
func New[T object.Object](target source.Target, src source.Source[T], queue *delta.Queue[T], opts Options) *Reflector[T] {
	if opts.PageSize <= 0 {
		opts.PageSize = defaultPageSize
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reflector[T]{
		Tracker: Tracker{Changed: opts.Changed},
		target:  target,
		src:     src,
		queue:   queue,
		opts:    opts,
		retry:   make(chan struct{}, 1),
		log:     opts.Logger.With("cluster", target.Cluster, "resource", target.Resource.GroupResource().String()),
	}
}

// Hinter is a refusal that says itself what would help.
type Hinter interface {
	error
	Hint() string
}

// RefusedError ends a reflector whose first request the server understood and
// refused. The message names cluster, resource and verb, and gives a hint.
type RefusedError struct {
	Err  error // a *source.Error
	Hint string
}

func (e *RefusedError) Error() string { return e.Err.Error() + "; " + e.Hint }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// Run lists and watches until ctx ends, and then returns its cause. It returns a
// [*RefusedError] if the server refuses a request and has never granted one. After
// the first grant, refusals are retried like all other errors.
func (r *Reflector[T]) Run(ctx context.Context) error {
	s := r.start()
	defer r.Update(func(s *Status) {
		if s.Phase != Refused {
			s.Phase = Stopped
		}
	})
	for ctx.Err() == nil {
		next, err := s.step(ctx, r)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			if refused := r.refused(err); refused != nil {
				r.Update(func(s *Status) { s.Phase, s.Err, s.ErrTime = Refused, refused, time.Now() })
				return refused
			}
			next = r.fail(err, next)
		}
		s = next
	}
	return context.Cause(ctx)
}

// Retry ends the wait after a failed request, if there is one. The caller knows that a
// retry may succeed now. It does not shorten a wait that the server has asked for.
func (r *Reflector[T]) Retry() {
	s := r.Status()
	if _, asked := apierrors.SuggestsClientDelay(s.Err); asked || s.Phase != Waiting {
		return
	}
	select {
	case r.retry <- struct{}{}:
	default:
	}
}

// start resets the reflector and returns its first state.
func (r *Reflector[T]) start() state[T] {
	r.granted, r.listed, r.retried = false, time.Time{}, time.Time{}
	r.resetBackoff()
	status := Status{Phase: Listing, ResourceVersion: r.opts.From, Expected: -1}
	first := state[T](listing[T]{})
	if r.opts.From != "" {
		status.Phase = Watching
		first = &watching[T]{version: r.opts.From}
	}
	r.Update(func(s *Status) { *s = status })
	return first
}

func (r *Reflector[T]) resetBackoff() {
	r.backoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: 64}
}

// fail returns the state after a step that failed with err and would be retried
// in the state retry.
func (r *Reflector[T]) fail(err error, retry state[T]) state[T] {
	now := time.Now()
	r.Update(func(s *Status) { s.Err, s.ErrTime = err, now; s.Errors++ })
	watched, isWatch := retry.(*watching[T])
	if isWatch {
		watched.verify = true
	}
	var undecodable *source.DecodeError
	var behind *behindError
	var gone *source.GoneError
	relist, phase := false, Waiting
	switch {
	case errors.As(err, &gone):
		if !r.listed.IsZero() { // Vanished has not been pushed yet
			r.queue.Push(delta.Delta[T]{Type: delta.Vanished, List: &delta.List[T]{Namespace: r.opts.Scope}})
			r.listed = time.Time{}
		}
		relist, phase = true, Gone
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		phase = Denied
	case expired(err):
		relist = true
		if isWatch && now.Sub(r.listed) > quickExpiry && !r.listed.IsZero() {
			r.log.Info("the watch has expired; listing again", "resourceVersion", watched.version)
			return listing[T]{}
		}
	case tooLarge(err), errors.As(err, &behind), apierrors.IsNotFound(err), errors.As(err, &undecodable):
		relist = true
	}
	if relist && isWatch {
		retry, isWatch = listing[T]{}, false
	}
	if now.Sub(r.retried) > backoffReset {
		r.resetBackoff()
	}
	delay := r.backoff.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, time.Duration(seconds)*time.Second)
	}
	r.retried = now.Add(delay)
	r.log.Warn("will try again", "err", err, "in", delay.Round(time.Millisecond), "list", !isWatch)
	return waiting[T]{until: r.retried, phase: phase, then: retry}
}

// refused returns an error if err is the server's refusal of a request and the
// server has never granted one.
func (r *Reflector[T]) refused(err error) *RefusedError {
	if r.granted {
		return nil
	}
	verb, resource := "list", r.target.Resource
	var failure *source.Error
	if errors.As(err, &failure) {
		verb, resource = failure.Verb, failure.Resource // ours may be a short name like "deploy", from before discovery
	}
	name := resource.GroupResource().String()
	if hinter := Hinter(nil); errors.As(err, &hinter) && hinter.Hint() != "" {
		return &RefusedError{err, hinter.Hint()}
	}
	switch {
	case apierrors.IsForbidden(err):
		where := ""
		if r.target.Namespace != "" {
			where = " -n " + r.target.Namespace
		}
		hint := fmt.Sprintf("grant the verbs list and watch on %s (see: kubectl auth can-i %s %s%s)", name, verb, name, where)
		if r.target.Namespace == "" {
			hint += ", or ask for a single namespace"
		}
		return &RefusedError{err, hint}
	case apierrors.IsUnauthorized(err):
		return &RefusedError{err, "check the credentials of the kubeconfig: they are missing, wrong or expired"}
	case apierrors.IsNotFound(err) && resource.Version == "": // named by the caller, and discovery does not know it
		return &RefusedError{err, "correct the name, or install the resource (see: kubectl api-resources)"}
	case apierrors.IsNotFound(err):
		return &RefusedError{err, fmt.Sprintf("the cluster does not serve %s in version %q (see: kubectl api-resources)", name, resource.Version)}
	case apierrors.IsMethodNotSupported(err):
		return &RefusedError{err, fmt.Sprintf("%s cannot be both listed and watched", name)}
	case apierrors.IsBadRequest(err):
		return &RefusedError{err, "correct the selectors or the resource"}
	}
	return nil
}

// expired reports whether the server no longer knows the version asked for.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge reports whether the server does not know the version asked for yet: it
// is behind, or has been restored from a backup.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}
