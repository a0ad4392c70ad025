package informer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/processor"
)

// Events yields what happens: every object in the store, then [Synced], then
// each change in order, until the loop is left or ctx ends, or the server
// refuses the informer. It may begin before the informer is started; while the
// informer is stopped it waits.
//
// The loop runs at its own pace: events it has not come to wait in the log,
// which it shares with every other reader. Each call follows anew.
func (inf *Informer[T]) Events(ctx context.Context, opts ...FollowOption) iter.Seq[Event[T]] {
	return func(yield func(Event[T]) bool) {
		inf.follow(ctx, inf.engine.follow(newFollowOptions(opts)), yield)
	}
}

// ErrExpired says that the changes after a resourceVersion are not all at hand.
var ErrExpired = errors.New("the changes since that resourceVersion are not retained")

// EventsSince yields the changes after resourceVersion, without an initial
// list, until the loop is left or ctx ends or the server refuses the informer.
// It is for one loop: a second one over the same sequence is told nothing.
// The version must be of an event with Resumable set, or of a list. If the
// window kept by [Retain] does not reach back to it, or the informer has not
// come to it yet (see [Informer.WaitFor]), the error is [ErrExpired]; [ErrVersion]
// if it is no version at all.
func (inf *Informer[T]) EventsSince(ctx context.Context, resourceVersion string, opts ...FollowOption) (iter.Seq[Event[T]], error) {
	since := object.Version(resourceVersion)
	if since == 0 {
		return nil, fmt.Errorf("%w, not %q", ErrVersion, resourceVersion)
	}
	f, ok := inf.engine.resume(since, newFollowOptions(opts))
	if !ok {
		have := Event[T]{version: inf.engine.latest().resourceVersion}.ResourceVersion()
		return nil, fmt.Errorf("%s: events since %s, having %q: %w", inf.target(), resourceVersion, have, ErrExpired)
	}
	var used atomic.Bool
	return func(yield func(Event[T]) bool) {
		if !used.Swap(true) {
			inf.follow(ctx, f, yield)
		}
	}, nil
}

// loop is somebody's range over events.
type loop struct {
	cancel context.CancelFunc
	status func() processor.Status
}

// follow runs f in the caller's goroutine until ctx ends or the informer is
// refused.
func (inf *Informer[T]) follow(ctx context.Context, f follower[T], yield func(Event[T]) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer f.Release()
	inf.mu.Lock()
	l := &loop{cancel, f.Status}
	inf.loops[l] = struct{}{}
	if ended(inf.runSilent()) && inf.run != nil && inf.run.err != nil {
		cancel()
	}
	inf.mu.Unlock()
	defer func() {
		inf.mu.Lock()
		delete(inf.loops, l)
		inf.mu.Unlock()
	}()
	f.run(ctx, false, yield)
}
