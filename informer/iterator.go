package informer

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"

	"github.com/tidings-io/tidings/internal/subscriber"
)

// Events yields every object in the store, then [Synced], then each change in
// order, until the loop is left, ctx ends, or the server refuses the informer.
// The loop may begin before the informer is started; while the informer is
// stopped it waits.
//
// The loop runs at its own pace. Events that it has not reached wait in the log,
// which all subscribers share. Each loop over the sequence is a new subscriber.
func (inf *Informer[T]) Events(ctx context.Context, opts ...SubscribeOption) iter.Seq[Event[T]] {
	return func(yield func(Event[T]) bool) {
		o := newSubscribeOptions(opts)
		inf.iterate(ctx, inf.subscription(subscriber.Subscribe(inf.store.Indexer, o), o), yield)
	}
}

// EventsSince yields the changes after resourceVersion, without an initial
// list, until the loop is left, ctx ends, or the server refuses the informer.
// Only one loop can use the sequence: another gets nothing.
//
// The version must be that of a list or of an event with Resumable set. The
// error is [ErrExpired] if the window kept by [Retain] does not reach back to
// the version, if the version lies between the state before a relist and its end,
// or if the informer has not reached it yet (see [Informer.WaitFor]),
// and [ErrVersion] if it is not a decimal number.
func (inf *Informer[T]) EventsSince(ctx context.Context, resourceVersion string, opts ...SubscribeOption) (iter.Seq[Event[T]], error) {
	since, err := parseVersion(resourceVersion)
	if err != nil {
		return nil, err
	}
	o := newSubscribeOptions(opts)
	s, ok := subscriber.Resume(inf.store.Indexer, since, o)
	if !ok {
		have := formatVersion(inf.store.Latest().ResourceVersion)
		return nil, fmt.Errorf("%s: events since %s, having %q: %w", inf.target(), resourceVersion, have, ErrExpired)
	}
	var used atomic.Bool
	return func(yield func(Event[T]) bool) {
		if !used.Swap(true) {
			inf.iterate(ctx, inf.subscription(s, o), yield)
		}
	}, nil
}

// loop is a range over events.
type loop struct {
	cancel context.CancelFunc
	status func() subscriber.Status
}

// iterate delivers events in the caller's goroutine until ctx ends or the
// informer is refused.
func (inf *Informer[T]) iterate(ctx context.Context, s subscription[T], yield func(Event[T]) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer s.Release()
	inf.mu.Lock()
	l := &loop{cancel, s.Status}
	inf.loops[l] = struct{}{}
	if inf.refusal() != nil {
		cancel()
	}
	inf.mu.Unlock()
	defer func() {
		inf.mu.Lock()
		delete(inf.loops, l)
		inf.mu.Unlock()
	}()
	s.deliver(ctx, false, yield)
}
