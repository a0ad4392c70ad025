package access

import (
	"context"
	"errors"
	"sync"
	"time"
)

// minRecheck is the shortest time between two checks of an open request.
const minRecheck = time.Second

// Reauthorize returns a context for a request that stays open, such as a watch. It
// calls check again whenever the result of the last check expires. If check fails, the
// context ends with a [LostError] of check's error as its cause. While the cluster is
// unavailable, check succeeds by the last positive result for [Options.Grace]. The
// returned function ends the context; it must be called.
//
// There is no goroutine between two checks, so thousands of requests can be open.
func (r *Reviewer) Reauthorize(ctx context.Context, check Check) (context.Context, context.CancelFunc) {
	openCtx, cancel := context.WithCancelCause(ctx)
	o := &openRequest{reviewer: r, ctx: openCtx, cancel: cancel, check: check}
	o.mu.Lock()
	o.timer = time.AfterFunc(minRecheck, o.recheck)
	o.mu.Unlock()
	return openCtx, func() {
		o.mu.Lock()
		o.timer.Stop()
		o.mu.Unlock()
		cancel(nil)
	}
}

// Check reports whether a request may go on, and when that result expires.
type Check func(ctx context.Context) (until time.Time, err error)

// Check returns the check of a request for one action: its credentials are still
// accepted, they belong to the same caller, and the caller still has the right.
func (r *Reviewer) Check(credentials Credentials, caller *Caller, a Attributes) Check {
	return func(ctx context.Context) (time.Time, error) {
		authenticatedUntil, err := r.Reauthenticate(ctx, credentials, caller)
		if err != nil {
			return time.Time{}, err
		}
		authorizedUntil, err := r.AuthorizeUntil(ctx, caller, a)
		return earlier(authenticatedUntil, authorizedUntil), err
	}
}

// Reauthenticate checks that credentials are still accepted and belong to the same
// caller as before, and returns when the result expires.
func (r *Reviewer) Reauthenticate(ctx context.Context, credentials Credentials, caller *Caller) (time.Time, error) {
	again, authenticatedUntil, err := r.authenticate(ctx, credentials)
	if err == nil && again.id != caller.id {
		err = unauthorized()
	}
	return authenticatedUntil, err
}

type openRequest struct {
	reviewer *Reviewer
	ctx      context.Context
	cancel   context.CancelCauseFunc
	check    Check

	mu    sync.Mutex
	timer *time.Timer
}

// recheck checks, and schedules the next check.
func (o *openRequest) recheck() {
	until, err := o.check(o.ctx)
	if o.ctx.Err() != nil {
		return
	}
	if err != nil {
		o.reviewer.lost.Add(1)
		o.cancel(&LostError{err})
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ctx.Err() == nil {
		o.timer.Reset(max(time.Until(until), minRecheck))
	}
}

// LostError is why an open request ended: the caller lost the right, or the right could
// not be reviewed any more.
type LostError struct{ Err error }

func (l *LostError) Error() string { return "no longer allowed: " + l.Err.Error() }

// Unwrap returns the error that a new request would get.
func (l *LostError) Unwrap() error { return l.Err }

// IsLost reports whether a context ended with a [LostError].
func IsLost(ctx context.Context) bool {
	var l *LostError
	return errors.As(context.Cause(ctx), &l)
}
