package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/object"
)

// EventType is the type of an [Event].
type EventType string

// The types of events.
const (
	Added    EventType = "ADDED"    // an object exists, or begins to match
	Modified EventType = "MODIFIED" // an object has changed
	Deleted  EventType = "DELETED"  // an object was deleted, or no longer matches
	Synced   EventType = "SYNCED"   // all initial objects have been delivered; changes follow
	Reset    EventType = "RESET"    // forget all objects: they are about to be delivered again
	Bookmark EventType = "BOOKMARK" // no object, only a new resume point
)

// Event is one event of a watch, about the objects that its query selects.
type Event struct {
	Type EventType
	// Object is set for Added, Modified and Deleted. For Deleted it is the last
	// state that matched.
	Object *Object
	// As is the resourceVersion that Object must have in this event, if not its own:
	// that of the change after which it no longer matches, or, for a deletion found by
	// a relist, that of the event delivered before.
	As string
	// ResourceVersion of the resource after the event. It may be empty.
	ResourceVersion string
	// ResumePoint is where a watch goes on after this event. Empty means unchanged. If
	// it is a decimal number, everything up to that version has been delivered.
	ResumePoint string
}

// Events yields events until the context ends, the loop is left, or an error occurs,
// which is yielded last. It is for a single loop. Events that are never used take memory
// until they are collected.
type Events = iter.Seq2[Event, error]

// ErrTooSlow ends a watch whose backlog is full, if its events must not be folded.
var ErrTooSlow = errors.New("too many changes since the last one that was delivered")

// Changes yields the changes of the objects that the query selects. It begins with a
// matching state, see [Reader.State]: Added for each object, then Synced. With [Exact]
// it begins after the version, without a state; the error is an [*mirror.Error] of
// reason Expired if neither the log nor the history reaches back to it. The cluster need not have
// reached the version: events up to it are skipped. Version 0 begins with the next
// event. A watch that is read too slowly ends with [ErrTooSlow]: its client may stop
// after any event and go on at that version, and would miss what was folded into a later
// event.
func (r *Reader) Changes(ctx context.Context, q *Query, match Match, version uint64) (Events, error) {
	f, err := r.ready(ctx, q)
	if err != nil {
		return nil, err
	}
	w := &watch{query: q, feed: f, initial: match != Exact, last: version}
	switch {
	case match == Latest:
		err = f.during(ctx, func(ctx context.Context) error {
			newest, err := f.newestVersion(ctx)
			if err != nil {
				return err
			}
			return f.reach(ctx, newest)
		})
	case match == NotOlderThan && f.version() < version:
		err = f.during(ctx, func(ctx context.Context) error { return f.future(ctx, version) })
	}
	if err != nil {
		return nil, err
	}
	w.begin(ctx)
	if w.initial {
		w.last, w.from = 0, f.Engine().Events(w.ctx, f.FollowOptions()...)
	} else if w.from, err = w.since(version); err != nil {
		if s := r.exactPast(ctx, q, version); s != nil && mirror.ReasonOf(err) == mirror.Expired {
			return w.fromPast(s), nil
		}
		w.stop()
		return nil, err
	} else {
		w.at.version = decimal(version)
	}
	return w.run, nil
}

// Watch yields the changes of the objects that the query selects. since is the resume
// point of the last handled event, or the resourceVersion of a list. The watch goes on
// after it or, if that is not possible, sends Reset and begins with all objects. If since
// is empty, the watch begins with all objects and then Synced. If it is "0", the watch
// does the same after Reset, for a client that may have a part of the objects. The
// backlog of a slow reader is folded to the newest of each object.
func (r *Reader) Watch(ctx context.Context, q *Query, since string) (Events, error) {
	at, err := parseResumePoint(since)
	if err != nil {
		return nil, err
	}
	if q.params.Source == Live {
		if err := q.checkOffered(ctx); err != nil {
			return nil, err
		}
		return r.watchLive(ctx, q, at)
	}
	f, err := r.ready(ctx, q)
	if err != nil {
		return nil, err
	}
	w := &watch{query: q, feed: f, fold: true, at: at}
	w.begin(ctx)
	if at.version == "" {
		return w.restart(at.partial), nil
	}
	if have, _ := f.Internals().Latest(); newer(at.version, have) {
		// The client has read from a mirror that is ahead of this one: wait for it.
		patience, cancel := context.WithTimeout(w.ctx, catchUp)
		_ = f.Engine().WaitFor(patience, at.version)
		cancel()
	}
	w.skip, w.last = at.more, object.Version(at.version)
	w.from, err = f.Engine().EventsSince(w.ctx, at.version, f.FollowOptions()...)
	switch {
	case w.ctx.Err() != nil:
		w.stop()
		return nil, context.Cause(w.ctx)
	case errors.Is(err, informer.ErrExpired):
		return w.restart(true), nil
	case err != nil:
		w.stop()
		return nil, mirror.Invalidf("resume a watch of %s: %v", q, err)
	}
	return func(yield func(Event, error) bool) {
		if w.run(yield); w.lost {
			w.restart(true)(yield)
		}
	}, nil
}

// catchUp is how long a watch waits for its first version if the mirror has not reached
// it. After that the watch begins anew.
const catchUp = 2 * time.Second

// newer reports whether the decimal number a is greater than b.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// restart begins the watch with all objects.
func (w *watch) restart(reset bool) Events {
	return func(yield func(Event, error) bool) {
		start := Event{Type: Bookmark, ResumePoint: partial}
		if reset {
			start.Type = Reset
		}
		if !yield(start, nil) {
			w.stop()
			return
		}
		w.initial, w.lost, w.skip, w.last, w.at = true, false, 0, 0, resumePoint{}
		w.from = w.feed.Engine().Events(w.ctx, w.feed.FollowOptions()...)
		w.run(yield)
	}
}

// watch is one watch of the cache.
type watch struct {
	query *Query
	feed  *feed
	ctx   context.Context // ends with the caller's and the informer's
	stop  func()
	from  iter.Seq[informer.Event[*Object]]
	fold  bool // the backlog may be folded

	initial bool        // the initial objects are being delivered
	at      resumePoint // after the delivered part of the log
	skip    int         // number of events after at that were delivered before
	lost    bool        // the log does not match the resume point
	failed  error       // why the watch cannot go on
	last    uint64      // the version of the last delivered object
	// relist are the changes found by a relist, which are delivered together.
	relist []informer.Event[*Object]
}

// begin sets the context of the watch, which ends with the caller's and the informer's.
// A watch whose loop never runs releases its resources too.
func (w *watch) begin(ctx context.Context) {
	w.ctx, w.stop = mirror.Either(ctx, w.feed.Context())
	context.AfterFunc(ctx, w.stop)
}

// since returns the events after a version. Version 0 is the present version of the
// mirror.
func (w *watch) since(version uint64) (events iter.Seq[informer.Event[*Object]], err error) {
	for range 100 { // EventsSince fails at the present version only if the informer relists meanwhile
		from, now := version, w.feed.version()
		ahead := now < version
		if ahead || version == 0 {
			from = now
		}
		events, err = w.feed.Engine().EventsSince(w.ctx, decimal(from), w.feed.FollowOptions()...)
		switch {
		case err == nil && ahead:
			return w.after(events, version), nil
		case err == nil:
			return events, nil
		}
		if !ahead && version != 0 {
			break
		}
	}
	if why := context.Cause(w.feed.Context()); why != nil {
		return nil, why
	}
	if errors.Is(err, informer.ErrExpired) {
		err = w.expired(err, version)
	}
	return nil, err
}

func (w *watch) expired(err error, version uint64) error {
	return &mirror.Error{Reason: mirror.Expired, Err: err, Message: fmt.Sprintf("too old resource version: %d (%d)", version, w.feed.version())}
}

// after skips the events up to a version, which the client has got from another mirror. If a relist
// passes the version, the watch expires: nobody knows how much of what it found the client has.
func (w *watch) after(events iter.Seq[informer.Event[*Object]], version uint64) iter.Seq[informer.Event[*Object]] {
	return func(yield func(informer.Event[*Object]) bool) {
		ahead := true
		for e := range events {
			if ahead && e.Relist && object.Version(e.ResourceVersion()) > version {
				w.failed = w.expired(informer.ErrExpired, version)
				return
			}
			if ahead && e.Type != informer.Synced {
				if v := object.Version(e.ResourceVersion()); v < version || v == version && e.Object != nil {
					continue
				}
				ahead = false
			}
			if !yield(e) {
				return
			}
		}
	}
}

// run delivers all events, in the caller's loop.
func (w *watch) run(yield func(Event, error) bool) {
	defer func() {
		if !w.lost {
			w.stop()
		}
	}()
	defer w.feed.Watched()()
	wanted := true
	deliver := func(e Event) bool {
		wanted = yield(e, nil)
		return wanted
	}
	for e := range w.from {
		if w.feed.Context().Err() != nil {
			break // the store is being emptied
		}
		if !w.fold && !w.initial && e.Folded && (!e.Resumable || len(w.relist) > 0) {
			yield(Event{}, ErrTooSlow)
			return
		}
		if !w.handle(e, deliver) {
			break
		}
	}
	if w.failed != nil {
		yield(Event{}, w.failed)
		return
	}
	if wanted && !w.lost && w.feed.Context().Err() != nil {
		yield(Event{}, context.Cause(w.feed.Context()))
	}
}

// handle delivers an event of the informer if the query selects it.
func (w *watch) handle(e informer.Event[*Object], deliver func(Event) bool) bool {
	switch {
	case e.Type == informer.Synced:
		w.initial, w.at = false, resumePoint{version: e.ResourceVersion()}
		w.last = max(w.last, object.Version(e.ResourceVersion()))
		return deliver(Event{Type: Synced, ResourceVersion: e.ResourceVersion(), ResumePoint: w.at.String()})
	case w.initial:
		return w.change(e, "", deliver)
	case w.skip > 0 && e.Resumable && len(w.relist) == 0:
		w.lost = true
		return false
	case e.Folded && !e.Resumable:
		// The log has neither this event nor the pending ones before it.
		changes := append(w.relist, e)
		w.relist = nil
		for _, e := range changes {
			if !w.change(e, partial, deliver) {
				return false
			}
		}
		return true
	case !e.Resumable:
		w.relist = append(w.relist, e)
		return true
	case len(w.relist) > 0:
		return w.deliverRelist(e, deliver)
	}
	w.at = resumePoint{version: e.ResourceVersion()}
	more := w.change(e, w.at.String(), deliver)
	w.last = max(w.last, object.Version(e.ResourceVersion()))
	return more
}

// deliverRelist delivers the changes of a relist and its closing event. They are ordered
// by the objects' versions, so that a client may stop after any event and go on from its
// version. The versions of deletions are unknown: a deletion takes the version of the
// event before it, and comes before the events at the version of the list, after which
// nothing more would be delivered. The order depends on the relist alone, so resume
// points in it keep their meaning.
func (w *watch) deliverRelist(last informer.Event[*Object], deliver func(Event) bool) bool {
	changes := append(w.relist, last)
	w.relist = nil
	replaced := map[string]bool{}
	for _, e := range changes {
		if e.Object != nil && e.Type != informer.Deleted {
			replaced[informer.Key(e.Object)] = true
		}
	}
	whole := object.Version(last.ResourceVersion())
	version := func(e informer.Event[*Object]) uint64 {
		if e.Object == nil || e.Tombstone {
			return 2 * whole
		}
		if v := object.Version(e.Object.GetResourceVersion()); v < whole {
			return 2 * v
		}
		return 2*whole + 1
	}
	slices.SortStableFunc(changes, func(a, b informer.Event[*Object]) int { return cmp.Compare(version(a), version(b)) })
	gone := map[string]informer.Event[*Object]{}
	ordered := make([]informer.Event[*Object], 0, len(changes))
	for _, e := range changes {
		if e.Object != nil && e.Tombstone && replaced[informer.Key(e.Object)] {
			gone[informer.Key(e.Object)] = e
		}
	}
	for _, e := range changes {
		if e.Object == nil {
			continue
		}
		key := informer.Key(e.Object)
		old, replaces := gone[key]
		switch {
		case e.Tombstone && replaced[key]:
			continue
		case replaces: // the object was deleted and created again
			ordered = append(ordered, old)
			delete(gone, key)
		}
		ordered = append(ordered, e)
	}
	for i, e := range ordered {
		if w.skip > 0 {
			w.skip--
		} else {
			at := resumePoint{version: w.at.version, more: i + 1}
			if i == len(ordered)-1 {
				at = resumePoint{version: last.ResourceVersion()}
			}
			if !w.change(e, at.String(), deliver) {
				return false
			}
		}
		if !e.Tombstone {
			w.last = max(w.last, object.Version(e.Object.GetResourceVersion()))
		}
	}
	w.skip, w.at = 0, resumePoint{version: last.ResourceVersion()}
	w.last = max(w.last, object.Version(last.ResourceVersion()))
	return deliver(Event{Type: Bookmark, ResourceVersion: last.ResourceVersion(), ResumePoint: w.at.String()})
}

// change delivers a change as the query sees it: an object that begins to match is Added,
// one that no longer does is Deleted. For a change that the query does not select, it
// delivers the resume point alone.
func (w *watch) change(e informer.Event[*Object], at string, deliver func(Event) bool) bool {
	matches := func(o *Object) bool { return o != nil && w.query.matches(o, &w.feed.selectors) }
	out := Event{Type: Bookmark, ResourceVersion: e.ResourceVersion(), ResumePoint: at}
	switch e.Type {
	case informer.Added:
		if matches(e.Object) {
			out.Type, out.Object = Added, e.Object
		}
	case informer.Updated:
		was, is := matches(e.Old), matches(e.Object)
		switch {
		case was && is:
			out.Type, out.Object = Modified, e.Object
		case is:
			out.Type, out.Object = Added, e.Object
		case was:
			out.Type, out.Object, out.As = Deleted, e.Old, e.Object.GetResourceVersion()
		}
	case informer.Deleted:
		if last := e.Old; last != nil && matches(last) || last == nil && matches(e.Object) {
			out.Type, out.Object = Deleted, e.Object
			if e.Tombstone && w.last > 0 {
				out.As = decimal(w.last)
			}
		}
	}
	if out.Type == Bookmark && out.ResumePoint == "" {
		return true
	}
	return deliver(out)
}
