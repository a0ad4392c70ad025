package reflector

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// state is a state of the machine.
type state[T object.Object] interface {
	// step does the work of the state and returns the next one. If it returns an
	// error as well, the state is the one to retry in, if the error allows it.
	step(ctx context.Context, r *Reflector[T]) (state[T], error)
}

// listing chooses how to list: by a WatchList stream or by pages.
type listing[T object.Object] struct {
	paged bool // the last WatchList stream failed
}

func (s listing[T]) step(ctx context.Context, r *Reflector[T]) (state[T], error) {
	r.Update(func(s *Status) { s.Phase, s.Received, s.Expected = Listing, 0, -1 })
	restored := false
	if src, ok := r.src.(source.Preparer); ok {
		var err error
		if restored, err = src.Prepare(ctx); err != nil {
			return s, err
		}
	}
	if (s.paged || r.opts.PlainLists) && !restored {
		return r.firstPage(), nil
	}
	return &streaming[T]{staged: NewStage[T](r.objects)}, nil
}

// streaming collects the initial events of a WatchList stream. After their end
// the same stream is a watch, and watch is set.
type streaming[T object.Object] struct {
	staged *Stage[T]
	watch  *watching[T]
}

func (s *streaming[T]) step(ctx context.Context, r *Reflector[T]) (state[T], error) {
	lasts := minWatch + overtime
	stream, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(bookmarkPatience, func() { cancel(errNoBookmark) })
	defer func() { patience.Stop() }()
	begun := time.Now()
	r.Update(func(s *Status) { s.Watches++ })
	opts := source.WatchOptions{InitialEvents: true, TimeoutSeconds: int64(minWatch / time.Second)}
	err := r.src.Watch(stream, opts, func(e source.Event[T]) error {
		if s.watch != nil {
			s.watch.event(r, e)
			return nil
		}
		if e.Type != source.Bookmark || !e.InitialEventsEnd {
			if s.stage(e) && time.Since(begun) < initialLimit {
				patience.Reset(bookmarkPatience)
			}
			r.progress(int64(s.staged.Len()), -1)
			return nil
		}
		if !patience.Stop() { // it has fired, and the stream is ending
			return errNoBookmark
		}
		s.watch = r.replace(s.staged.Take(), e.ResourceVersion)
		// The end of the stream may be overdue from here on, as that of any watch.
		patience = time.AfterFunc(lasts, func() { cancel(errOverdue) })
		return nil
	})
	if s.watch != nil {
		if errors.Is(err, errOverdue) {
			err = nil
		}
		return s.watch, err
	}
	if ctx.Err() != nil {
		return listing[T]{}, err
	}
	var failure *source.Error
	switch {
	case err == nil, errors.Is(err, errNoBookmark), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), expired(err), tooLarge(err):
		r.log.Debug("no WatchList stream; listing instead", "err", err)
		return r.firstPage(), nil
	case errors.As(err, &failure): // a plain list may do better, unless it would be refused as well
		paged := !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err)
		return listing[T]{paged: paged}, err
	}
	return listing[T]{}, err
}

// stage applies an event before the end of the initial events. It reports whether the
// event shows that they still go on.
func (s *streaming[T]) stage(e source.Event[T]) (initial bool) {
	switch e.Type {
	case source.Added, source.Modified:
		return s.staged.Set(e.Object)
	case source.Deleted:
		s.staged.Delete(e.Object)
	}
	return false
}

// paging lists page by page.
type paging[T object.Object] struct {
	opts  source.ListOptions // of the next page
	items []T
}

func (r *Reflector[T]) firstPage() *paging[T] {
	limit := r.opts.PageSize
	if r.failed {
		limit = min(limit, defaultPageSize)
	}
	return &paging[T]{opts: source.ListOptions{Limit: limit}, items: make([]T, 0, r.objects)}
}

func (s *paging[T]) step(ctx context.Context, r *Reflector[T]) (state[T], error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(listPatience, func() { cancel(errStalled) })
	defer patience.Stop()
	result, err := r.src.List(ctx, s.opts, func(o T) error {
		patience.Reset(listPatience)
		s.items = append(s.items, o)
		r.progress(int64(len(s.items)), -1)
		return nil
	})
	switch {
	case err != nil && expired(err) && s.opts.Continue != "":
		// As client-go does, list without pages after a continue token has expired.
		r.log.Info("the list expired between two pages; listing in one piece", "objects", len(s.items))
		clear(s.items)
		return &paging[T]{items: s.items[:0]}, nil
	case err != nil:
		r.failed = true
		return listing[T]{}, err
	case result.Continue == "":
		return r.replace(s.items, result.ResourceVersion), nil
	case result.Continue == s.opts.Continue:
		return listing[T]{}, &source.Error{Target: r.target, Verb: "list", Err: errors.New("the server answered with the continue token it was given")}
	}
	if result.Remaining >= 0 {
		r.progress(int64(len(s.items)), int64(len(s.items))+result.Remaining)
	}
	s.opts.Continue = result.Continue
	return s, nil
}

// watching follows changes after a version.
type watching[T object.Object] struct {
	version string // of the last event or of the list
	// verify is set after a failure, until the next event: the next watch is
	// accompanied by a check of the server's latest version.
	verify bool

	contacted time.Time // when the last event came whose time was taken
	untimed   int       // events since then
}

func (s *watching[T]) step(ctx context.Context, r *Reflector[T]) (state[T], error) {
	lasts := minWatch + rand.N(minWatch)
	opts := source.WatchOptions{ResourceVersion: s.version, TimeoutSeconds: int64(lasts / time.Second)}
	// The server ends the watch in time. If it does not, the connection is dead.
	ctx, cancel := context.WithTimeoutCause(ctx, lasts+overtime, errOverdue)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	if s.verify {
		defer r.checkLatest(ctx, s.version, end)()
	}
	begun, events := time.Now(), 0
	r.Update(func(s *Status) { s.Watches++; s.Phase = Watching })
	err := r.src.Watch(ctx, opts, func(e source.Event[T]) error {
		events++
		s.event(r, e)
		return nil
	})
	switch {
	case errors.Is(err, errOverdue) && events > 0:
		err = nil
	case err == nil && events == 0 && time.Since(begun) < shortWatch:
		err = &source.Error{Target: r.target, Verb: "watch", Err: errShortWatch}
	case err == nil:
		r.granted = true
	}
	return s, err
}

// timedEvents is how often the time of an event is taken while events come faster
// than they are applied: reading the clock takes as long as the rest of the work.
const timedEvents = 16

// event pushes an event of the watch.
func (s *watching[T]) event(r *Reflector[T], e source.Event[T]) {
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
	if version != "" { // without one, the next watch starts at the last one known
		s.version = version
	}
	s.verify, r.granted = false, true
	if s.untimed++; queued < timedEvents || s.untimed >= timedEvents {
		s.untimed = 0
		s.contacted = time.Now()
	}
	r.received(s.version, s.contacted)
}

// waiting waits after a failure.
type waiting[T object.Object] struct {
	until time.Time
	phase Phase // Waiting, Denied or Gone
	then  state[T]
}

func (s waiting[T]) step(ctx context.Context, r *Reflector[T]) (state[T], error) {
	r.Update(func(status *Status) { status.Phase, status.Retry = s.phase, s.until })
	select {
	case <-time.After(time.Until(s.until)):
	case <-r.retry:
	case <-ctx.Done():
	}
	return s.then, nil
}

// replace pushes a complete list and returns the state that watches from it.
func (r *Reflector[T]) replace(items []T, version string) *watching[T] {
	now := time.Now()
	// The phase changes before the push: when a store has synced, its reflector is no
	// longer listing.
	r.Update(func(s *Status) { s.Phase, s.Contact = Watching, now })
	r.queue.Push(delta.Delta[T]{Type: delta.Replaced, List: &delta.List[T]{Items: items, ResourceVersion: version, Namespace: r.opts.Scope}})
	r.granted, r.listed, r.objects, r.failed = true, now, len(items), false
	var lists uint64
	r.Update(func(s *Status) {
		s.Lists++
		lists, s.ResourceVersion = s.Lists, version
		s.Received, s.Expected = int64(len(items)), int64(len(items))
	})
	if lists > 1 {
		r.log.Info("listed again", "objects", len(items), "resourceVersion", version)
	}
	return &watching[T]{version: version} // even if the list has none: an older one would be wrong
}

// progress notes how far a list has come. A negative total leaves the last known
// one.
func (r *Reflector[T]) progress(received, expected int64) {
	r.Update(func(s *Status) {
		s.Received = received
		if expected >= 0 {
			s.Expected = expected
		}
		s.Contact = time.Now()
	})
}
