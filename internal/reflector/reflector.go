// Package reflector drives a source for ever: it lists, watches from where the
// list ends, and keeps watching through everything that goes wrong. It decides
// what to ask for next and when; it keeps no objects.
//
// The protocol is one state machine with two wants:
//
//	       ┌── 410 Expired, version too large, undecodable, restored ────┐
//	       ▼                                                              │
//	want a list ──► WatchList stream ──► initial-events-end ──► watching ─┤
//	       │                │ refused, or no bookmark in time       ▲     │
//	       └──► paged list ◄┘ ──────────────────────────────────────┘     │
//	                        want a watch ◄── end of stream, network, 5xx ─┘
//
// Every failure is followed by a wait with exponential backoff and jitter, or
// the server's Retry-After if that is longer; only the end of a healthy watch
// and the first 410 after one are followed up at once.
package reflector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	// PageSize is the limit of a paged list. 0 means 500, as client-go has it.
	PageSize int64
	// PlainLists does not try WatchList streams: the source has none.
	PlainLists bool
	// From starts with a watch after this resourceVersion, without a list.
	// A list follows if the server no longer knows it.
	From string
	// Scope is the namespace that lists and bookmarks are of, if the store has
	// its namespaces listed one by one.
	Scope string
	// Changed, if not nil, is called when the Phase, the Err or the Lists of the
	// status have changed. It must not block.
	Changed func()
	// Logger gets relists and errors. nil means silence.
	Logger *slog.Logger
}

const (
	defaultPageSize = 500
	// bookmarkPatience is how long a WatchList stream may bring nothing new
	// before its initial-events-end bookmark is given up on: servers that do
	// not know sendInitialEvents ignore it and never send one.
	bookmarkPatience = 10 * time.Second
	// initialLimit bounds a WatchList stream that brings something all the
	// time and yet no bookmark.
	initialLimit = 5 * time.Minute
	// watchMinutes is how long a watch is asked to last, at least; up to twice
	// that at random, so that the watches of many do not end together.
	watchMinutes = 5 * time.Minute
	// overtime is how long the end of a watch may be overdue.
	overtime = 30 * time.Second
	// listPatience is how long a list may bring nothing. A kube-apiserver gives
	// up on one after a minute, and says so.
	listPatience = 90 * time.Second
	// A watch that ends sooner than this, without an event, is a failure.
	shortWatch = time.Second
	// A list that expires sooner than this after the last one waits first.
	quickExpiry = 5 * time.Second
	// Backoff starts anew when this long has gone by without an error.
	backoffReset = 2 * time.Minute
)

// Reflector drives one source.
type Reflector[T object.Object] struct {
	Board
	target  source.Target
	src     source.Source[T]
	queue   *delta.Queue[T]
	opts    Options
	log     *slog.Logger
	backoff wait.Backoff

	// The state of the machine; only Run touches it.
	wantList    bool
	plainList   bool // the next list is a paged one: WatchList did not work out
	version     string
	doubtful    bool      // a request has failed since the last event of a watch
	established bool      // has had a good answer to a watch or list
	contacted   time.Time // when the last event came that was dated
	undated     int       // events since then
	listed      time.Time
	objects     int // in the last list
	failed      time.Time
}

// New returns a reflector that pushes what src says to queue.
func New[T object.Object](target source.Target, src source.Source[T], queue *delta.Queue[T], opts Options) *Reflector[T] {
	if opts.PageSize <= 0 {
		opts.PageSize = defaultPageSize
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	return &Reflector[T]{Board: Board{Changed: opts.Changed}, target: target, src: src, queue: queue, opts: opts, log: opts.Logger.With("cluster", target.Cluster, "resource", target.Resource.GroupResource().String())}
}

// RefusedError ends a reflector that never got going: the server understood
// the request and will not answer it. The message names cluster, resource and
// verb, and says what would help.
type RefusedError struct {
	Err  error // a *source.Error
	Hint string
}

func (e *RefusedError) Error() string { return e.Err.Error() + "; " + e.Hint }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// Run lists and watches until ctx ends, and then returns its cause. It returns
// a [*RefusedError] as soon as the server refuses what is asked before it has
// ever granted it; once it has, refusals are waited out like everything else.
func (r *Reflector[T]) Run(ctx context.Context) error {
	r.reset()
	defer r.Note(func(s *Status) {
		if s.Phase != Refused {
			s.Phase = Stopped
		}
	})
	for ctx.Err() == nil {
		var err error
		if r.wantList {
			err = r.list(ctx)
		} else {
			err = r.watch(ctx, source.WatchOptions{ResourceVersion: r.version})
		}
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			continue
		}
		if refused := r.refused(err); refused != nil {
			r.Note(func(s *Status) { s.Phase, s.Err, s.ErrTime = Refused, refused, time.Now() })
			return refused
		}
		if err := r.recover(ctx, err); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// reset makes the machine as new.
func (r *Reflector[T]) reset() {
	r.wantList, r.plainList, r.established, r.doubtful = r.opts.From == "", false, false, false
	r.version = r.opts.From
	r.listed, r.failed = time.Time{}, time.Time{}
	r.resetBackoff()
	r.Note(func(s *Status) {
		*s = Status{Phase: Listing, ResourceVersion: r.version, Expected: -1}
		if !r.wantList {
			s.Phase = Watching
		}
	})
}

func (r *Reflector[T]) resetBackoff() {
	r.backoff = wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Cap: 30 * time.Second, Steps: 64}
}

// refused says whether err is the server's no to something it has not granted
// before.
func (r *Reflector[T]) refused(err error) *RefusedError {
	if r.established {
		return nil
	}
	verb, resource := "list", r.target.Resource
	var failure *source.Error
	if errors.As(err, &failure) {
		verb, resource = failure.Verb, failure.Resource // ours may be a name like "deploy", from before discovery
	}
	name := resource.GroupResource().String()
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
	case apierrors.IsNotFound(err):
		return &RefusedError{err, fmt.Sprintf("the cluster does not serve %s in version %q (see: kubectl api-resources)", name, resource.Version)}
	case apierrors.IsMethodNotSupported(err):
		return &RefusedError{err, fmt.Sprintf("%s cannot be both listed and watched", name)}
	case apierrors.IsBadRequest(err):
		return &RefusedError{err, "mend the selectors or the resource"}
	}
	return nil
}

// recover decides what to do after a failure, and waits before it is done.
func (r *Reflector[T]) recover(ctx context.Context, err error) error {
	now := time.Now()
	r.Note(func(s *Status) { s.Err, s.ErrTime = err, now; s.Errors++ })
	r.doubtful = true
	var undecodable *source.DecodeError
	var behind *behindError
	var gone *source.GoneError
	phase := Waiting
	switch {
	case errors.As(err, &gone):
		if r.listed != (time.Time{}) { // and not told already
			r.queue.Push(delta.Delta[T]{Type: delta.Vanished, List: &delta.List[T]{Namespace: r.opts.Scope}})
			r.listed = time.Time{}
		}
		phase, r.wantList = Gone, true
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		phase = Denied
	case expired(err):
		watched := !r.wantList
		r.wantList = true
		if watched && now.Sub(r.listed) > quickExpiry && !r.listed.IsZero() {
			r.log.Info("the watch has expired; listing again", "resourceVersion", r.version)
			return nil
		}
	case tooLarge(err), errors.As(err, &behind), apierrors.IsNotFound(err), errors.As(err, &undecodable):
		r.wantList = true
	}
	if now.Sub(r.failed) > backoffReset {
		r.resetBackoff()
	}
	delay := r.backoff.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, time.Duration(seconds)*time.Second)
	}
	r.failed = now.Add(delay)
	r.log.Warn("will try again", "err", err, "in", delay.Round(time.Millisecond), "list", r.wantList)
	r.Note(func(s *Status) { s.Phase, s.Retry = phase, r.failed })
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// expired says that the server no longer knows the version asked for.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge says that the server does not know the version asked for yet: it
// is behind, or has been restored from a backup.
func tooLarge(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// watch follows changes until the stream ends.
func (r *Reflector[T]) watch(ctx context.Context, opts source.WatchOptions) error {
	lasts := watchMinutes + rand.N(watchMinutes)
	opts.TimeoutSeconds = int64(lasts / time.Second)
	// The server ends the watch in time. If it does not, the connection is
	// dead in a way nobody noticed.
	ctx, cancel := context.WithTimeoutCause(ctx, lasts+overtime, errOverdue)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer r.doubt(ctx, opts.ResourceVersion, end)()
	begun, events := time.Now(), 0
	r.Note(func(s *Status) { s.Watches++; s.Phase = Watching })
	err := r.src.Watch(ctx, opts, func(e source.Event[T]) error {
		events++
		r.doubtful = false
		r.push(e)
		return nil
	})
	if errors.Is(err, errOverdue) && events > 0 {
		return nil
	}
	if err == nil && events == 0 && time.Since(begun) < shortWatch {
		return &source.Error{Target: r.target, Verb: "watch", Err: errShortWatch}
	}
	if err == nil {
		r.established = true
	}
	return err
}

var (
	errOverdue    = errors.New("the server did not end the watch in time")
	errStalled    = fmt.Errorf("the server has sent nothing for %v", listPatience)
	errShortWatch = errors.New("the server ended the watch at once, without an event")
)

// contact notes that the server has been heard of.
func (r *Reflector[T]) contact() {
	r.established = true
	r.Note(func(s *Status) { s.Contact = time.Now() })
}

// rush is how many deltas wait when events come quicker than they are applied.
const rush = 16

// push hands on an event of a watch.
func (r *Reflector[T]) push(e source.Event[T]) {
	d := delta.Delta[T]{Object: e.Object}
	version := e.ResourceVersion
	switch e.Type {
	case source.Added:
		d.Type = delta.Added
	case source.Modified:
		d.Type = delta.Updated
	case source.Deleted:
		d.Type = delta.Deleted
	case source.Bookmark:
		d.Type, d.List = delta.Bookmark, &delta.List[T]{ResourceVersion: version, Namespace: r.opts.Scope}
	}
	queued := r.queue.Push(d)
	if d.List == nil {
		version = e.Object.GetResourceVersion()
	}
	if version != "" { // or else a watch goes on from the last one
		r.version = version
	}
	r.established = true
	// Of a rush, one event in some is dated: reading the clock takes as long as
	// all the rest.
	if r.undated++; queued < rush || r.undated >= rush {
		r.undated = 0
		r.contacted = time.Now()
	}
	r.heard(r.version, r.contacted)
}
