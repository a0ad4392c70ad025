package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/mirror"
)

// EventType says what an [Event] is about.
type EventType string

// The events of a watch.
const (
	Added    EventType = "ADDED"    // an object is there, or has come to match
	Modified EventType = "MODIFIED" // an object has changed
	Deleted  EventType = "DELETED"  // an object is gone, or no longer matches
	Synced   EventType = "SYNCED"   // everything there is has been delivered; changes follow
	Reset    EventType = "RESET"    // forget everything: it is about to be delivered anew
	Bookmark EventType = "BOOKMARK" // nothing to deliver, but the position has moved
)

// Event is one event of a watch, of what its query selects.
type Event struct {
	Type EventType
	// Object is set for Added, Modified and Deleted. For Deleted it is the last
	// state that matched.
	Object *Object
	// As is the resourceVersion that Object has in this event, if that is not its
	// own: of the change by which it has left the selection, or, of a deletion that
	// only a list has shown, of what was delivered before it.
	As string
	// ResourceVersion of the whole when the event had happened; may be empty.
	ResourceVersion string
	// Position is where a watch goes on behind this event. Empty: as before. A
	// decimal number is the version that everything has been delivered up to.
	Position string
}

// Events yields events until the context ends, the loop is left, or there is an
// error, which comes last. It is for one loop; one that is never used costs memory
// until it is collected.
type Events = iter.Seq2[Event, error]

// ErrTooSlow ends a watch of which more waits than may, if it is not to be folded.
var ErrTooSlow = errors.New("too many changes since the last one that was delivered")

// Changes yields what happens to what the query selects. It begins with a state that
// matches, as for [Reader.State], all of it as Added events, and then Synced. With
// [Exact] it begins behind the version with no state; the error is an [*mirror.Error]
// of reason Expired if the mirror does not know any more what happened since. A
// version that is of the future is allowed: what happens up to it is not delivered.
// Version 0 begins with what comes next. A watch that is read too slowly ends with
// [ErrTooSlow]: a client may stop after any event and go on at its version, and would
// miss what was folded into a later one.
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
		w.stop()
		return nil, err
	} else {
		w.at.version = decimal(version)
	}
	return w.run, nil
}

// Watch yields what happens to what the query selects, from a position: that of the
// last event handled, or a resourceVersion of a list. The watch goes on behind it or,
// if that is not possible, says Reset and begins anew. Empty means to begin with
// everything there is, then Synced; "0" the same after Reset, for one that may have
// half of it. What waits for a slow reader is folded to the newest of each object.
func (r *Reader) Watch(ctx context.Context, q *Query, since string) (Events, error) {
	at, err := parsePosition(since)
	if err != nil {
		return nil, err
	}
	if q.ask.Source == Live {
		if err := q.offered(ctx); err != nil {
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
		return w.restart(at.begun), nil
	}
	if have, _ := f.Engine().Seen(); newer(at.version, have) {
		// Somebody has read on ahead of this mirror: it may yet come to it.
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

// catchUp is how long a watch that begins at a version the mirror has not come to
// waits for it, before it begins anew instead.
const catchUp = 2 * time.Second

// newer says that one decimal number is greater than another.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// restart begins with everything there is.
func (w *watch) restart(reset bool) Events {
	return func(yield func(Event, error) bool) {
		start := Event{Type: Bookmark, Position: begun}
		if reset {
			start.Type = Reset
		}
		if !yield(start, nil) {
			w.stop()
			return
		}
		w.initial, w.lost, w.skip, w.last, w.at = true, false, 0, 0, position{}
		w.from = w.feed.Engine().Events(w.ctx, w.feed.FollowOptions()...)
		w.run(yield)
	}
}

// watch is one watch of the cache.
type watch struct {
	query *Query
	feed  *feed
	ctx   context.Context // of the caller, ended with the informer's as well
	stop  func()
	from  iter.Seq[informer.Event[*Object]]
	fold  bool // what waits may be folded

	initial bool     // everything there is is being delivered
	at      position // behind what has been delivered of the log
	skip    int      // as many events behind at were delivered before
	lost    bool     // the log does not go on as the position said it did
	last    uint64   // the version of the object delivered last
	// held are changes that mean something only together: what a list has brought to
	// light.
	held []informer.Event[*Object]
}

// begin has the watch end with the caller and with the informer; also one whose loop
// never runs leaves nothing behind.
func (w *watch) begin(ctx context.Context) {
	w.ctx, w.stop = mirror.Either(ctx, w.feed.Context())
	context.AfterFunc(ctx, w.stop)
}

// since follows what happens behind a version. Version 0 is that which the mirror is
// at.
func (w *watch) since(version uint64) (events iter.Seq[informer.Event[*Object]], err error) {
	for range 100 { // it fails only if the informer lists anew at this very moment
		from, now := version, w.feed.version()
		ahead := now < version
		if ahead || version == 0 {
			from = now
		}
		events, err = w.feed.Engine().EventsSince(w.ctx, decimal(from), w.feed.FollowOptions()...)
		switch {
		case err == nil && ahead:
			return behind(events, version), nil
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
		err = &mirror.Error{Reason: mirror.Expired, Err: err, Message: fmt.Sprintf("too old resource version: %d (%d)", version, w.feed.version())}
	}
	return nil, err
}

// behind leaves out what has happened up to a version.
func behind(events iter.Seq[informer.Event[*Object]], version uint64) iter.Seq[informer.Event[*Object]] {
	return func(yield func(informer.Event[*Object]) bool) {
		ahead := true
		for e := range events {
			if e.Object != nil && e.Type != informer.Deleted && object.Version(e.Object.GetResourceVersion()) <= version {
				e.Type, e.Object, e.Old = informer.Bookmark, nil, nil // it has been seen; a list has brought it to light
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

// run delivers everything, in the caller's loop.
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
			break // what comes now is the store being emptied
		}
		if !w.fold && !w.initial && e.Folded && (!e.Resumable || len(w.held) > 0) {
			yield(Event{}, ErrTooSlow)
			return
		}
		if !w.event(e, deliver) {
			break
		}
	}
	if wanted && !w.lost && w.feed.Context().Err() != nil {
		yield(Event{}, context.Cause(w.feed.Context()))
	}
}

// event delivers an event of the informer, if the query is about it.
func (w *watch) event(e informer.Event[*Object], deliver func(Event) bool) bool {
	switch {
	case e.Type == informer.Synced:
		w.initial, w.at = false, position{version: e.ResourceVersion()}
		w.last = max(w.last, object.Version(e.ResourceVersion()))
		return deliver(Event{Type: Synced, ResourceVersion: e.ResourceVersion(), Position: w.at.String()})
	case w.initial:
		return w.change(e, "", deliver)
	case w.skip > 0 && e.Resumable && len(w.held) == 0:
		w.lost = true
		return false
	case e.Folded && !e.Resumable:
		// The log does not hold what is delivered, nor what was held before it.
		held := append(w.held, e)
		w.held = nil
		for _, e := range held {
			if !w.change(e, begun, deliver) {
				return false
			}
		}
		return true
	case !e.Resumable:
		w.held = append(w.held, e)
		return true
	case len(w.held) > 0:
		return w.together(e, deliver)
	}
	w.at = position{version: e.ResourceVersion()}
	more := w.change(e, w.at.String(), deliver)
	w.last = max(w.last, object.Version(e.ResourceVersion()))
	return more
}

// together delivers what is held, and the event that closes it, in an order in which
// a client may stop anywhere and go on from the version of the last event it got: by
// the objects' versions. The versions of deletions are not known: they take that of
// the event before, and come in front of what has the version of the whole, behind
// which nothing would be delivered any more. The order depends on what is held alone,
// so that positions in it mean the same after a break.
func (w *watch) together(last informer.Event[*Object], deliver func(Event) bool) bool {
	held := append(w.held, last)
	w.held = nil
	replaced := map[string]bool{}
	for _, e := range held {
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
	slices.SortStableFunc(held, func(a, b informer.Event[*Object]) int { return cmp.Compare(version(a), version(b)) })
	gone := map[string]informer.Event[*Object]{}
	ordered := make([]informer.Event[*Object], 0, len(held))
	for _, e := range held {
		if e.Object != nil && e.Tombstone && replaced[informer.Key(e.Object)] {
			gone[informer.Key(e.Object)] = e
		}
	}
	for _, e := range held {
		if e.Object == nil {
			continue
		}
		key := informer.Key(e.Object)
		old, replaces := gone[key]
		switch {
		case e.Tombstone && replaced[key]:
			continue
		case replaces: // another object has taken the name
			ordered = append(ordered, old)
			delete(gone, key)
		}
		ordered = append(ordered, e)
	}
	for i, e := range ordered {
		if w.skip > 0 {
			w.skip--
		} else {
			at := position{version: w.at.version, more: i + 1}
			if i == len(ordered)-1 {
				at = position{version: last.ResourceVersion()}
			}
			if !w.change(e, at.String(), deliver) {
				return false
			}
		}
		if !e.Tombstone {
			w.last = max(w.last, object.Version(e.Object.GetResourceVersion()))
		}
	}
	w.skip, w.at = 0, position{version: last.ResourceVersion()}
	w.last = max(w.last, object.Version(last.ResourceVersion()))
	return deliver(Event{Type: Bookmark, ResourceVersion: last.ResourceVersion(), Position: w.at.String()})
}

// change delivers a change as it is for the query: an object that comes to match is
// Added, one that ceases to is Deleted. If there is nothing to deliver, the position
// alone is.
func (w *watch) change(e informer.Event[*Object], at string, deliver func(Event) bool) bool {
	matches := func(o *Object) bool { return o != nil && w.query.matches(o, &w.feed.selectors) }
	out := Event{Type: Bookmark, ResourceVersion: e.ResourceVersion(), Position: at}
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
	if out.Type == Bookmark && out.Position == "" {
		return true
	}
	return deliver(out)
}
