package read

import (
	"context"
	"errors"
	"time"
)

// A list that must be as fresh as the cluster waits until the mirror is. If that takes
// longer than a request, the list is read live, but only a few at a time, to spare the
// API server: the other lists get their answer from the mirror together.
const (
	// liveListDelay is the time before a live list: a kube-apiserver waits for its own
	// cache, as the mirror does, to list the newest state.
	liveListDelay = 20 * time.Millisecond
	// maxLiveObjects bounds the objects of a live list.
	maxLiveObjects = 500
	// maxLiveLists bounds the concurrent live lists of a resource.
	maxLiveLists = 4
)

// tryLive runs a live list, or returns errBusy if there are too many.
func (f *feed) tryLive(list func() (*State, error)) (*State, error) {
	if f.live.Add(1) > maxLiveLists {
		f.live.Add(-1)
		return nil, errBusy
	}
	defer f.live.Add(-1)
	return list()
}

var errBusy = errors.New("too many requests to the cluster")

// race returns the state of ours or, if that takes longer than after, of ours and
// theirs whichever is first. The later state is released. The error is that of ours.
func race(ctx context.Context, after time.Duration, ours, theirs func(context.Context) (*State, error)) (*State, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		state *State
		err   error
	}
	run := func(get func(context.Context) (*State, error)) <-chan answer {
		out := make(chan answer, 1)
		go func() {
			state, err := get(ctx)
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
