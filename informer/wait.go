package informer

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidings-io/tidings/internal/object"
)

// WaitForSync waits until the informer has a complete list; at once if it has
// one. Waiting for an informer that has not been started is allowed. The error
// says why there was none: the server's refusal, or the end of ctx together
// with the last thing that went wrong.
func (inf *Informer[T]) WaitForSync(ctx context.Context) error { return inf.waitForSync(ctx, nil) }

// waitForSync waits for a complete list; if it is to come from a certain run,
// no longer than that run lasts.
func (inf *Informer[T]) waitForSync(ctx context.Context, of *run) error {
	for {
		inf.mu.Lock()
		r, changed := inf.run, inf.changed
		inf.mu.Unlock()
		if of != nil {
			r = of
		}
		latest := inf.engine.latest()
		if latest.synced {
			return nil
		}
		if r != nil && ended(r.silent) {
			if r.err != nil {
				return r.err
			}
			if of != nil {
				return inf.unsynced(context.Cause(r.ctx))
			}
		}
		select {
		case <-latest.superseded:
		case <-changed:
		case <-ctx.Done():
			return inf.unsynced(context.Cause(ctx))
		}
	}
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// unsynced says why a wait for sync was in vain.
func (inf *Informer[T]) unsynced(cause error) error {
	status := inf.Status()
	switch {
	case status.LastError != nil:
		return fmt.Errorf("%s did not sync: %w; last error: %w", inf.target(), cause, status.LastError)
	case status.Phase == Stopped:
		return fmt.Errorf("%s did not sync: %w; the informer does not run", inf.target(), cause)
	}
	return fmt.Errorf("%s did not sync: %w; %s, %d objects so far", inf.target(), cause, status.Phase, status.Received)
}

// ErrVersion is returned for a resourceVersion that is not a decimal number.
var ErrVersion = errors.New("not a resourceVersion that can be compared: a decimal number is needed")

// WaitFor waits until the informer has seen everything up to resourceVersion:
// read your own writes by waiting for the version that the write returned. The
// informer learns of versions by changes of the objects it mirrors, and
// otherwise by bookmarks, which the server sends about once a minute. The
// error is ctx's, or [ErrVersion].
func (inf *Informer[T]) WaitFor(ctx context.Context, resourceVersion string) error {
	want := object.Version(resourceVersion)
	if want == 0 {
		return fmt.Errorf("%w, not %q", ErrVersion, resourceVersion)
	}
	for {
		latest := inf.engine.latest()
		if latest.synced && latest.resourceVersion >= want {
			return nil
		}
		select {
		case <-latest.superseded:
		case <-ctx.Done():
			have := Event[T]{version: latest.resourceVersion}.ResourceVersion()
			return fmt.Errorf("%s: wait for resourceVersion %s, having %q: %w", inf.target(), resourceVersion, have, context.Cause(ctx))
		}
	}
}

// ViewAt is [Informer.View] of a state that is at least as new as
// resourceVersion, see [Informer.WaitFor].
func (inf *Informer[T]) ViewAt(ctx context.Context, resourceVersion string) (*View[T], error) {
	if err := inf.WaitFor(ctx, resourceVersion); err != nil {
		return nil, err
	}
	return inf.View(), nil
}
