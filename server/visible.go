package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/read"
)

// visible finds the namespaces that a query may be about, of those that hold
// anything: nil means all. It also says until when that is known.
func (s *Server) visible(ctx context.Context, g *grant, q *read.Query) ([]string, time.Time, error) {
	if s.opts.Gate == nil {
		return nil, time.Now().Add(time.Hour), nil
	}
	until, err := g.reviewer.AuthorizeUntil(ctx, g.caller, g.done)
	if err == nil {
		return nil, until, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, until, err
	}
	held, more, err := s.reader.Namespaces(ctx, q, s.opts.MaxVisible)
	if err != nil {
		return nil, until, err
	}
	if more {
		return nil, until, bad(nil, "%s are in more than %d namespaces, which is as many as are looked through for one caller: ask for a namespace that you may read", q.Resource(), s.opts.MaxVisible)
	}
	return g.reviewer.Among(ctx, g.caller, g.done, held)
}

// errOthers ends a round of a watch: the namespaces are others now.
var errOthers = errors.New("other namespaces may be seen now")

// watchVisible watches the namespaces that the caller may see. Whenever that
// changes, it says Reset and begins anew: what is told of a namespace is told
// while it may be seen, and nothing is told to take it back.
//
// A position is of use as long as the namespaces are those that it was told
// with; which those were is a part of it.
func (s *Server) watchVisible(ctx context.Context, g *grant, q *read.Query, since string) (read.Events, error) {
	namespaces, _, err := s.visible(ctx, g, q)
	if err != nil {
		return nil, err
	}
	since, of, tagged := strings.Cut(since, "~")
	if since != "" && since != "0" && (!tagged || of != tag(namespaces)) {
		since = "0"
	}
	round := func(namespaces []string, since string) (read.Events, context.Context, context.CancelFunc, error) {
		within := q
		if namespaces != nil {
			var err error
			if within, err = q.Within(namespaces); err != nil {
				return nil, nil, nil, err
			}
		}
		held, stop := s.holdVisible(ctx, g, q, namespaces)
		events, err := s.reader.Watch(held, within, since)
		if err != nil {
			stop()
		}
		return events, held, stop, err
	}
	events, held, stop, err := round(namespaces, since)
	if err != nil {
		return nil, err
	}
	return func(yield func(read.Event, error) bool) {
		for {
			ended := relay(events, "~"+tag(namespaces), yield)
			others := errors.Is(context.Cause(held), errOthers)
			stop()
			if ended || !others || ctx.Err() != nil {
				if !ended && access.IsLost(held) {
					yield(read.Event{}, context.Cause(held))
				}
				return
			}
			if namespaces, _, err = s.visible(ctx, g, q); err == nil {
				events, held, stop, err = round(namespaces, "0")
			}
			if err != nil {
				if ctx.Err() == nil {
					yield(read.Event{}, err)
				}
				return
			}
		}
	}, nil
}

// holdVisible ends the context when the namespaces that the caller may see are not
// those any more that they are now.
func (s *Server) holdVisible(ctx context.Context, g *grant, q *read.Query, now []string) (context.Context, context.CancelFunc) {
	if s.opts.Gate == nil {
		return context.WithCancel(ctx)
	}
	return g.reviewer.Hold(ctx, func(ctx context.Context) (time.Time, error) {
		known, err := g.reviewer.Recognize(ctx, g.credentials, g.caller)
		if err != nil {
			return time.Time{}, err
		}
		namespaces, until, err := s.visible(ctx, g, q)
		if err != nil {
			return time.Time{}, err
		}
		if (namespaces == nil) != (now == nil) || !slices.Equal(namespaces, now) {
			return time.Time{}, errOthers
		}
		if known.Before(until) {
			until = known
		}
		return until, nil
	})
}

// relay tells events with a mark on their positions. It returns true when the
// loop is to end: it was left, or the error is one to tell.
func relay(events read.Events, mark string, yield func(read.Event, error) bool) (ended bool) {
	for e, err := range events {
		if err != nil {
			yield(e, err)
			return true
		}
		if e.Position != "" && e.Position != "0" {
			e.Position += mark
		}
		if !yield(e, nil) {
			return true
		}
	}
	return false
}

// tag stands for a set of namespaces.
func tag(namespaces []string) string {
	if namespaces == nil {
		return "all"
	}
	sum := sha256.Sum256([]byte(strings.Join(namespaces, "/")))
	return hex.EncodeToString(sum[:6])
}
