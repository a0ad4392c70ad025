package mirror

import (
	"context"
	"errors"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// catchUp is how long a watch that begins at a version the mirror has not come
// to waits for it, before it begins anew instead.
const catchUp = 2 * time.Second

// place is a position in what happened: behind everything up to a version, and
// as many events more. Changes have versions of their own to resume at; the
// differences that a relist brings to light have one together, and are counted.
type place struct {
	version string // decimal, or "" before the first
	more    int
}

func (p place) String() string {
	if p.more == 0 {
		return p.version
	}
	return p.version + "." + strconv.Itoa(p.more)
}

// begun is the position of one who may have seen a part of what there is, and
// cannot go on from there.
const begun = "0"

// parsePlace reads what place.String writes: "1234" or "1234.5".
func parsePlace(s string) (place, error) {
	version, more, counted := strings.Cut(s, ".")
	p := place{version: version}
	v, err := strconv.ParseUint(version, 10, 64)
	if err == nil && counted {
		p.more, err = strconv.Atoi(more)
	}
	if err != nil || strconv.FormatUint(v, 10) != version || counted && (p.more <= 0 || p.more == math.MaxInt || strconv.Itoa(p.more) != more) {
		return place{}, invalid("%.80q is not a position to resume a watch at: hand back the id of the last event as it was, or a resourceVersion", s)
	}
	return p, nil
}

// Watch implements [Data].
func (c cache) Watch(ctx context.Context, q Query, since string) (iter.Seq2[Event, error], error) {
	w := &watch{query: q, reset: since == begun}
	if since != "" {
		var err error
		if w.at, err = parsePlace(since); err != nil {
			return nil, err
		}
	}
	var err error
	if w.keeper, err = c.ready(ctx, q); err != nil {
		return nil, err
	}
	w.ctx, w.stop = either(ctx, w.keeper.ctx)
	if since == "" || since == begun {
		return w.run, nil
	}
	if w.changes, err = w.since(w.at.version); err != nil {
		w.stop()
		return nil, err
	}
	w.reset = w.changes == nil
	return w.run, nil
}

// watch is one watch of the cache.
type watch struct {
	query   Query
	keeper  *keeper
	ctx     context.Context // of the caller, ended with the keeper's as well
	stop    func()
	changes iter.Seq[informer.Event[*codec.Raw]] // to resume with, nil to begin anew
	reset   bool                                 // whether to say so

	at     place // behind what has been seen of the log
	synced bool  // at means something
	wanted bool  // the loop has not been left
}

// since returns the changes after a version, nil if they are not at hand.
func (w *watch) since(version string) (iter.Seq[informer.Event[*codec.Raw]], error) {
	inf := w.keeper.informer
	have, _ := inf.Seen() // before: it may come to it at any time
	changes, err := inf.EventsSince(w.ctx, version, w.keeper.following()...)
	if errors.Is(err, informer.ErrExpired) && newer(version, have) {
		// Somebody has read on ahead of this mirror: it may yet come to it.
		patience, cancel := context.WithTimeout(w.ctx, catchUp)
		defer cancel()
		if inf.WaitFor(patience, version) == nil {
			changes, err = inf.EventsSince(w.ctx, version, w.keeper.following()...)
		}
	}
	switch {
	case w.ctx.Err() != nil:
		return nil, context.Cause(w.ctx)
	case errors.Is(err, informer.ErrExpired):
		return nil, nil
	case err != nil:
		return nil, invalid("resume a watch of %s: %v", w.query.Target, err)
	}
	return changes, nil
}

// following is how watches follow the informer.
func (k *keeper) following() []informer.FollowOption {
	return []informer.FollowOption{informer.WithBookmarks(), informer.FoldAfterFunc(k.member.mirror.backlog)}
}

// newer says that one decimal number is greater than another.
func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// run tells everything, in the caller's loop.
func (w *watch) run(yield func(Event, error) bool) {
	defer w.stop()
	defer w.keeper.use.begin()()
	w.wanted = true
	tell := func(e Event) bool {
		w.wanted = yield(e, nil)
		return w.wanted
	}
	if w.changes != nil && !w.resume(tell) {
		w.changes, w.reset = nil, true
	}
	if w.changes == nil && w.wanted {
		w.begin(tell)
	}
	if w.wanted && w.keeper.ctx.Err() != nil {
		yield(Event{}, context.Cause(w.keeper.ctx))
	}
}

// begin tells everything there is, and then what happens.
func (w *watch) begin(tell func(Event) bool) {
	w.synced = false
	start := Event{Type: Bookmark, Position: begun}
	if w.reset {
		start.Type = Reset
	}
	if !tell(start) {
		return
	}
	for e := range w.keeper.informer.Events(w.ctx, w.keeper.following()...) {
		if !w.event(e, tell) {
			return
		}
	}
}

// resume tells what happened since w.at. It returns false if the log does not
// go on as the position says it did.
func (w *watch) resume(tell func(Event) bool) bool {
	w.synced = true
	skip := w.at.more
	for e := range w.changes {
		if skip > 0 {
			// Told before, and not an event to resume at: else the position
			// would be of that one.
			if skip--; e.Resumable {
				return false
			}
			continue
		}
		if !w.event(e, tell) {
			break
		}
	}
	return true
}

// event tells one event of the informer, if the query is about it.
func (w *watch) event(e informer.Event[*codec.Raw], tell func(Event) bool) bool {
	if w.keeper.ctx.Err() != nil {
		return false // what comes now is the store being emptied
	}
	switch {
	case e.Resumable:
		w.at, w.synced = place{version: e.ResourceVersion()}, true
	case w.synced:
		w.at.more++
	}
	out := Event{Type: Bookmark, ResourceVersion: e.ResourceVersion()}
	switch {
	case e.Folded && !e.Resumable:
		out.Position = begun // the log does not hold what is being told
	case w.synced && w.at.version != "":
		out.Position = w.at.String()
	}
	switch e.Type {
	case informer.Synced:
		out.Type = Synced
	case informer.Added:
		if w.query.matches(e.Object) {
			out.Type, out.Object = Added, e.Object
		}
	case informer.Updated:
		was, is := e.Old != nil && w.query.matches(e.Old), w.query.matches(e.Object)
		switch {
		case was && is:
			out.Type, out.Object = Modified, e.Object
		case is:
			out.Type, out.Object = Added, e.Object
		case was:
			out.Type, out.Object = Deleted, e.Old
		}
	case informer.Deleted:
		if last := e.Old; last != nil && w.query.matches(last) || last == nil && w.query.matches(e.Object) {
			out.Type, out.Object = Deleted, e.Object
		}
	}
	if out.Type == Bookmark && out.Position == "" {
		return true
	}
	return tell(out)
}
