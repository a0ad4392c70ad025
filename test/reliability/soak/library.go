package soak

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tidings-io/tidings/informer"
)

// handler is a handler of the library. It is checked at every event to resume from.
type handler[T informer.Object] struct {
	*replay
	ctx   context.Context
	pause func() time.Duration // before each event
}

// Handle implements [informer.Handler].
func (h *handler[T]) Handle(e informer.Event[T]) {
	if h.pause != nil {
		Sleep(h.ctx, h.pause())
	}
	replayEvent(h.ctx, h.replay, e)
}

// replayEvent passes an event of the library to a replay.
func replayEvent[T informer.Object](ctx context.Context, p *replay, e informer.Event[T]) {
	switch e.Type {
	case informer.Synced:
		p.synced()
	case informer.Added, informer.Updated, informer.Deleted:
		what := map[informer.EventType]string{informer.Added: "ADDED", informer.Updated: "MODIFIED", informer.Deleted: "DELETED"}[e.Type]
		p.event(what, informer.Key(e.Object), number(e.Object.GetResourceVersion()))
		if e.Folded {
			p.mu.Lock()
			p.folded++
			p.mu.Unlock()
		}
	}
	if e.Resumable || e.Type == informer.Synced {
		p.reached(ctx, number(e.ResourceVersion()), true)
	}
}

// handle adds a handler to an informer.
func handle[T informer.Object](ctx context.Context, s *soak, inf *informer.Informer[T], r resource, name string, pause func() time.Duration, options ...informer.SubscribeOption) {
	p := newReplay("handler", name, r, s.truth, s.report)
	p.slow = pause != nil
	options = append(options, informer.Bookmarks(), informer.Named(name))
	inf.AddHandler(&handler[T]{replay: p, ctx: ctx, pause: pause}, options...)
}

// loop follows an informer. From time to time it stops and resumes later.
func loop[T informer.Object](ctx context.Context, s *soak, inf *informer.Informer[T], r resource, name string, random *rand.Rand) error {
	p := newReplay("loop", name, r, s.truth, s.report)
	version := ""
	for ctx.Err() == nil {
		stay, cancel := context.WithTimeout(ctx, between(random, time.Second, 20*time.Second))
		events := inf.Events(stay, informer.Bookmarks())
		if version != "" {
			since, err := inf.EventsSince(stay, version, informer.Bookmarks())
			switch {
			case errors.Is(err, informer.ErrExpired):
				p.restart("expired")
			case err != nil:
				cancel()
				return err
			default:
				p.resume(version)
				events = since
			}
		} else {
			p.restart("left before it could go on")
		}
		version = ""
		for e := range events {
			replayEvent(ctx, p, e)
			if e.Resumable || e.Type == informer.Synced {
				version = e.ResourceVersion()
			} else {
				version = ""
			}
		}
		cancel()
		Sleep(ctx, between(random, 0, 2*time.Second))
	}
	return nil
}

// views compares the store of an informer with the truth from time to time.
func views[T informer.Object](ctx context.Context, s *soak, inf *informer.Informer[T], r resource) error {
	at := s.truth.cursor(r.stored)
	for Sleep(ctx, checkEvery) {
		view := inf.View()
		version, synced := number(view.ResourceVersion()), view.Synced()
		has := map[string]uint64{}
		for o := range view.All(informer.Query{}) {
			has[informer.Key(o)] = number(o.GetResourceVersion())
		}
		view.Release()
		if synced {
			s.state(ctx, "view", "of "+r.plural+" of the library", at, has, version)
		}
	}
	return nil
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64)
	return n
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// Sleep returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
