package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/internal/delta"
	"github.com/tidings-io/tidings/internal/source"
)

// list fetches everything there is: by a WatchList stream, which then goes on
// as the watch, or page by page.
func (r *Reflector[T]) list(ctx context.Context) error {
	r.Note(func(s *Status) { s.Phase, s.Received, s.Expected = Listing, 0, -1 })
	if r.plainList || r.opts.PlainLists {
		r.plainList = false
		return r.pages(ctx)
	}
	initial, err := r.watchList(ctx)
	if !initial || ctx.Err() != nil {
		return err
	}
	// The stream ended among the initial events. A no to the request itself
	// ends here; whatever else it was, a plain list may do better.
	var failure *source.Error
	switch {
	case err == nil, errors.Is(err, errNoBookmark), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), expired(err), tooLarge(err):
		r.log.Debug("no WatchList stream; listing instead", "err", err)
		return r.pages(ctx)
	case errors.As(err, &failure):
		r.plainList = !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) && !apierrors.IsTooManyRequests(err)
	}
	return err
}

var errNoBookmark = errors.New("the server did not mark the end of the initial events in time")

// watchList streams the initial events and goes on watching. initial says that
// the stream ended before the initial events did.
func (r *Reflector[T]) watchList(ctx context.Context) (initial bool, err error) {
	initial = true
	lasts := watchMinutes + overtime
	stream, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(bookmarkPatience, func() { cancel(errNoBookmark) })
	defer patience.Stop()
	begun := time.Now()
	staged := newStage[T](r.objects)
	r.Note(func(s *Status) { s.Watches++ })

	opts := source.WatchOptions{InitialEvents: true, TimeoutSeconds: int64(watchMinutes / time.Second)}
	err = r.src.Watch(stream, opts, func(e source.Event[T]) error {
		if !initial {
			r.push(e)
			return nil
		}
		if e.Type != source.Bookmark || !e.InitialEventsEnd {
			if staged.apply(e) && time.Since(begun) < initialLimit {
				patience.Reset(bookmarkPatience)
			}
			r.progress(int64(staged.len()), -1)
			return nil
		}
		if !patience.Stop() { // it fired: the stream is ending
			return errNoBookmark
		}
		initial = false
		r.replace(staged.take(), e.ResourceVersion)
		r.Note(func(s *Status) { s.Phase = Watching })
		// From here on it is a watch, and may be overdue like any other.
		patience = time.AfterFunc(lasts, func() { cancel(errOverdue) })
		return nil
	})
	patience.Stop()
	if !initial && errors.Is(err, errOverdue) {
		err = nil
	}
	return initial, err
}

// pages lists page by page. A continue token that expires on the way is
// followed by a list in one piece, as client-go does.
func (r *Reflector[T]) pages(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(listPatience, func() { cancel(errStalled) })
	defer patience.Stop()

	opts := source.ListOptions{Limit: r.opts.PageSize}
	items := make([]T, 0, r.objects)
	for {
		patience.Reset(listPatience)
		result, err := r.src.List(ctx, opts, func(o T) error {
			patience.Reset(listPatience)
			items = append(items, o)
			r.progress(int64(len(items)), -1)
			return nil
		})
		if err != nil && expired(err) && opts.Continue != "" {
			r.log.Info("the list expired between two pages; listing in one piece", "objects", len(items))
			opts = source.ListOptions{}
			clear(items)
			items = items[:0]
			continue
		}
		if err != nil {
			return err
		}
		if result.Continue == "" {
			r.replace(items, result.ResourceVersion)
			return nil
		}
		if result.Continue == opts.Continue {
			return &source.Error{Target: r.target, Verb: "list", Err: fmt.Errorf("the server answered with the continue token it was given")}
		}
		if result.Remaining >= 0 {
			r.progress(int64(len(items)), int64(len(items))+result.Remaining)
		}
		opts.Continue = result.Continue
	}
}

// replace hands on a complete list.
func (r *Reflector[T]) replace(items []T, version string) {
	r.contact()
	r.queue.Push(delta.Delta[T]{Type: delta.Replaced, List: &delta.List[T]{Items: items, ResourceVersion: version, Namespace: r.opts.Scope}})
	r.wantList, r.doubtful = false, false
	r.listed, r.objects = time.Now(), len(items)
	r.version = version // even if there is none: an older one would be wrong
	var lists uint64
	r.Note(func(s *Status) {
		s.Lists++
		lists, s.ResourceVersion = s.Lists, version
		s.Received, s.Expected = int64(len(items)), int64(len(items))
	})
	if lists > 1 {
		r.log.Info("listed again", "objects", len(items), "resourceVersion", version)
	}
}

// progress notes how far a list has come; an unknown total leaves the last
// one known.
func (r *Reflector[T]) progress(received, expected int64) {
	r.Note(func(s *Status) {
		s.Received = received
		if expected >= 0 {
			s.Expected = expected
		}
		s.Contact = time.Now()
	})
}
