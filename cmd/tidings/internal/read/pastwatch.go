package read

import (
	"context"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// fromPast begins the watch after a state of the history, which it closes, and goes on
// with the log of the informer once that reaches back to what was read. The events are
// those that the API server would have sent. The watch ends with an error of reason
// Expired where changes may be missing.
func (w *watch) fromPast(s *history.State) Events {
	context.AfterFunc(w.ctx, func() { _ = s.Close() }) // also if the loop never runs
	return func(yield func(Event, error) bool) {
		log := s.WatchAfter(w.query.selectsKey, w.query.selective())
		version := s.ResourceVersion
		var seen selectorCache
		// wanted is whether the reader wants more, or the error.
		deliver := func() (wanted bool, err error) {
			for c, err := range log.Read(w.ctx, time.Time{}) {
				if err != nil {
					return true, err
				}
				if c.Relist {
					return true, &mirror.Error{Reason: mirror.Expired, Message: "changes were missed at resourceVersion " + decimal(version) + ": list again"}
				}
				version = c.SeriesVersion
				e, err := w.query.pastEvent(c, &seen)
				if err != nil || !yield(e, nil) {
					return err != nil, err
				}
			}
			return true, nil
		}
		for {
			wanted, err := deliver()
			if wanted && err == nil {
				if w.from, err = w.since(version); err == nil {
					w.last, w.at.version = version, decimal(version)
					w.run(yield)
					return
				}
				if mirror.ReasonOf(err) == mirror.Expired {
					// The history is further behind than the log reaches back.
					select {
					case <-time.After(pastPause):
						continue
					case <-w.ctx.Done():
						err = context.Cause(w.ctx)
					}
				}
			}
			if w.stop(); wanted {
				yield(Event{}, err)
			}
			return
		}
	}
}

// pastPause is how long a watch waits for the history to go on.
const pastPause = 100 * time.Millisecond

// pastEvent returns a change as a watch of the query delivers it.
func (q *Query) pastEvent(c history.Change, seen *selectorCache) (Event, error) {
	at := decimal(c.SeriesVersion)
	out := Event{Type: Bookmark, ResourceVersion: at, ResumePoint: at}
	if !q.selectsKey(c.Key) {
		return out, nil
	}
	change, selected, err := q.pastChange(c, seen)
	if err != nil || !selected {
		return out, err
	}
	out.Type, out.Object = change.Type, change.Object
	if change.Type == Deleted && c.Type != history.Deleted { // it no longer matches
		out.Object, out.As = change.Before, decimal(c.ResourceVersion)
	}
	return out, nil
}
