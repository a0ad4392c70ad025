package informer

import (
	"context"
	"fmt"
)

// WaitForSync waits until the informer has a complete list, and returns at once
// if it has one. The informer need not have been started. The error is the
// server's refusal, or the cause of ctx's end together with the last error.
func (inf *Informer[T]) WaitForSync(ctx context.Context) error { return inf.waitForSync(ctx, nil) }

// waitForSync waits for a complete list. If of is not nil, it waits no longer
// than that run lasts.
func (inf *Informer[T]) waitForSync(ctx context.Context, of *run) error {
	for {
		inf.mu.Lock()
		r, changed := inf.run, inf.changed.Next()
		inf.mu.Unlock()
		if of != nil {
			r = of
		}
		latest := inf.store.Latest()
		if latest.Synced {
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
		case <-latest.Tail().Ready():
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

// unsynced returns the error of a wait for a list that did not come.
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

// WaitFor waits until the informer has seen everything up to resourceVersion. To
// read your own writes, wait for the version that the write returned. The
// informer learns of versions from changes of the objects it mirrors, and
// otherwise from bookmarks, which the server sends about once a minute. The
// error is ctx's, or [ErrVersion].
func (inf *Informer[T]) WaitFor(ctx context.Context, resourceVersion string) error {
	want, err := parseVersion(resourceVersion)
	if err != nil {
		return err
	}
	for {
		latest := inf.store.Latest()
		if latest.Synced && latest.ResourceVersion >= want {
			return nil
		}
		select {
		case <-latest.Tail().Ready():
		case <-ctx.Done():
			err := fmt.Errorf("%s: wait for resourceVersion %s, having %q: %w", inf.target(), resourceVersion, formatVersion(latest.ResourceVersion), context.Cause(ctx))
			if phase := inf.Status().Phase; phase == Stopped || phase == Refused {
				err = fmt.Errorf("%w; the informer does not run", err)
			}
			return err
		}
	}
}
