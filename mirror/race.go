package mirror

import (
	"context"
	"time"
)

// liveAfter is how long a read that must be as fresh as the cluster waits for the
// mirror to be that, before the cluster is asked for the answer itself: no
// longer than a request to it takes.
const liveAfter = 20 * time.Millisecond

// liveObjects is how many objects such an answer may have for it to be worth it.
const liveObjects = 500

// race returns the first answer of two: of ours, or, if that takes its time, of
// theirs. An answer that comes too late is discarded. The error is ours.
func race[T any](ctx context.Context, ours, theirs func(context.Context) (T, error), discard func(T)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		value T
		err   error
	}
	run := func(ask func(context.Context) (T, error)) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			value, err := ask(ctx)
			out <- answer{value, err}
		}()
		return out
	}
	late := func(from <-chan answer) {
		go func() {
			if a := <-from; a.err == nil {
				discard(a.value)
			}
		}()
	}
	first := run(ours)
	patience := time.NewTimer(liveAfter)
	defer patience.Stop()
	select {
	case a := <-first:
		return a.value, a.err
	case <-patience.C:
	}
	second := run(theirs)
	select {
	case a := <-first:
		late(second)
		return a.value, a.err
	case b := <-second:
		if b.err == nil {
			late(first)
			return b.value, nil
		}
	}
	a := <-first
	return a.value, a.err
}
