package access

import (
	"context"
	"errors"
	"sync"
	"time"
)

// soonest is how soon an open request is asked about again at the earliest.
const soonest = time.Second

// Hold returns a context for a request that stays open, such as a watch. It ends
// when check, called whenever an answer it rests on has run out, says that the
// caller has lost what it needs: its cause is check's error. While the cluster
// cannot be asked, the last yes is check's answer for [Options.Grace]. The
// function ends it at once; it must be called.
//
// Nothing runs between two calls, so that thousands can be open.
func (r *Reviewer) Hold(ctx context.Context, check Check) (context.Context, context.CancelFunc) {
	held, cancel := context.WithCancelCause(ctx)
	h := &hold{reviewer: r, ctx: held, cancel: cancel, check: check}
	h.mu.Lock()
	h.timer = time.AfterFunc(soonest, h.again) // check says when to come next
	h.mu.Unlock()
	return held, func() {
		h.mu.Lock()
		h.timer.Stop()
		h.mu.Unlock()
		cancel(nil)
	}
}

// Check says whether a request may go on, and until when that is known.
type Check func(ctx context.Context) (until time.Time, err error)

// Check makes the check of a request that does one thing: that its credentials
// are accepted, are the same caller's, and that it has the right.
func (r *Reviewer) Check(credentials Credentials, caller *Caller, a Attributes) Check {
	return func(ctx context.Context) (time.Time, error) {
		known, err := r.Recognize(ctx, credentials, caller)
		if err != nil {
			return time.Time{}, err
		}
		believed, err := r.AuthorizeUntil(ctx, caller, a)
		return earlier(known, believed), err
	}
}

// Recognize makes sure that credentials are still accepted and are the same
// caller's as before, and says until when that is known.
func (r *Reviewer) Recognize(ctx context.Context, credentials Credentials, caller *Caller) (time.Time, error) {
	now, known, err := r.authenticate(ctx, credentials)
	if err == nil && now.id != caller.id {
		err = unauthorized()
	}
	return known, err
}

type hold struct {
	reviewer *Reviewer
	ctx      context.Context
	cancel   context.CancelCauseFunc
	check    Check

	mu    sync.Mutex
	timer *time.Timer
}

// again checks, and says when to check next.
func (h *hold) again() {
	until, err := h.check(h.ctx)
	if h.ctx.Err() != nil {
		return
	}
	if err != nil {
		h.reviewer.lost.Add(1)
		h.cancel(&Lost{err})
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil {
		h.timer.Reset(max(time.Until(until), soonest))
	}
}

// Lost is why a request that was open has ended: the caller no longer has the
// right, or it cannot be known.
type Lost struct{ Err error }

func (l *Lost) Error() string { return "no longer allowed: " + l.Err.Error() }

// Unwrap returns what a new request would be answered.
func (l *Lost) Unwrap() error { return l.Err }

// IsLost says that a context ended because of a [Lost].
func IsLost(ctx context.Context) bool {
	var l *Lost
	return errors.As(context.Cause(ctx), &l)
}
