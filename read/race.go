package read

import (
	"context"
	"errors"
	"time"
)

// A list that must be as fresh as the cluster waits for the mirror to be that. If
// that takes longer than a request to the cluster, the cluster is asked for the
// answer itself, but only by a few at a time: it is to be left alone, and the
// others have their answer together.
const (
	// liveList is how long is waited first: for a list of the newest state a
	// kube-apiserver waits for its own cache, as the mirror does.
	liveList = 20 * time.Millisecond
	// liveObjects is how many objects a list may have for it to be worth it.
	liveObjects = 500
	// liveAtOnce is how many such lists of a resource may be under way.
	liveAtOnce = 4
)

// tryLive runs a read of the cluster itself if not too many are under way.
func (f *feed) tryLive(ask func() (*State, error)) (*State, error) {
	if f.live.Add(1) > liveAtOnce {
		f.live.Add(-1)
		return nil, errBusy
	}
	defer f.live.Add(-1)
	return ask()
}

var errBusy = errors.New("enough are asking")

// race returns the first answer of two: of ours, or, if that takes its time, of
// theirs. An answer that comes too late is discarded. The error is ours.
func race(ctx context.Context, after time.Duration, ours, theirs func(context.Context) (*State, error)) (*State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		state *State
		err   error
	}
	run := func(ask func(context.Context) (*State, error)) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			state, err := ask(ctx)
			out <- answer{state, err}
		}()
		return out
	}
	late := func(from <-chan answer) {
		go func() {
			if a := <-from; a.err == nil {
				a.state.Release()
			}
		}()
	}
	first := run(ours)
	patience := time.NewTimer(after)
	defer patience.Stop()
	select {
	case a := <-first:
		return a.state, a.err
	case <-patience.C:
	}
	second := run(theirs)
	select {
	case a := <-first:
		late(second)
		return a.state, a.err
	case b := <-second:
		if b.err == nil {
			late(first)
			return b.state, nil
		}
	}
	a := <-first
	return a.state, a.err
}
