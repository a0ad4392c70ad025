package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// visible returns the namespaces that the caller may read, of those with objects, and
// when the result expires. nil means all namespaces.
func (s *Server) visible(ctx context.Context, g *grant, q *read.Query) ([]string, time.Time, error) {
	if s.opts.Gate == nil {
		return nil, time.Now().Add(time.Hour), nil
	}
	until, err := g.reviewer.AuthorizeUntil(ctx, g.caller, g.attributes)
	if err == nil {
		return nil, until, nil
	}
	if !apierrors.IsForbidden(err) {
		return nil, until, err
	}
	present, more, err := s.reader.Namespaces(ctx, q, s.opts.MaxVisible)
	if err != nil {
		return nil, until, err
	}
	if more {
		return nil, until, invalid(nil, "%s are in more than %d namespaces, the limit for visible=true: name a namespace that you may read", q.Resource(), s.opts.MaxVisible)
	}
	return g.reviewer.AllowedNamespaces(ctx, g.caller, g.attributes, present)
}

// errNamespacesChanged ends a round of a watch.
var errNamespacesChanged = errors.New("the visible namespaces have changed")

// watchVisible watches the namespaces that the caller may read. When they change, it
// sends RESET and starts again: events of a namespace are sent only while the caller
// may read it, and nothing is sent to take them back.
//
// A resume point is valid as long as the namespaces are the same as when it was sent.
// It contains a tag of them.
func (s *Server) watchVisible(ctx context.Context, g *grant, q *read.Query, since string) (read.Events, error) {
	namespaces, _, err := s.visible(ctx, g, q)
	if err != nil {
		return nil, err
	}
	since, tagged, hasTag := strings.Cut(since, "~")
	if since != "" && since != "0" && (!hasTag || tagged != namespacesTag(namespaces)) {
		since = "0"
	}
	round := func(namespaces []string, since string) (read.Events, context.Context, context.CancelFunc, error) {
		narrowed := q
		if namespaces != nil {
			var err error
			if narrowed, err = q.Within(namespaces); err != nil {
				return nil, nil, nil, err
			}
		}
		g.sees(namespaces)
		roundCtx, stop := s.reauthorizeSeen(ctx, g, newSeen(namespaces, nil))
		events, err := s.reader.Watch(roundCtx, narrowed, since)
		if err != nil {
			stop()
		}
		return events, roundCtx, stop, err
	}
	events, roundCtx, stop, err := round(namespaces, since)
	if err != nil {
		return nil, err
	}
	return func(yield func(read.Event, error) bool) {
		for {
			ended := forwardEvents(events, "~"+namespacesTag(namespaces), yield)
			changed := errors.Is(context.Cause(roundCtx), errNamespacesChanged)
			stop()
			if ended || !changed || ctx.Err() != nil {
				if !ended && access.IsLost(roundCtx) {
					yield(read.Event{}, context.Cause(roundCtx))
				}
				return
			}
			if namespaces, _, err = s.visible(ctx, g, q); err == nil {
				events, roundCtx, stop, err = round(namespaces, "0")
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

// forwardEvents yields events with mark appended to their positions. It returns true if
// the loop has to end: it was left, or an error was yielded.
func forwardEvents(events read.Events, mark string, yield func(read.Event, error) bool) (ended bool) {
	for e, err := range events {
		if err != nil {
			yield(e, err)
			return true
		}
		if e.ResumePoint != "" && e.ResumePoint != "0" {
			e.ResumePoint += mark
		}
		if !yield(e, nil) {
			return true
		}
	}
	return false
}

// namespacesTag identifies a set of namespaces.
func namespacesTag(namespaces []string) string {
	if namespaces == nil {
		return "all"
	}
	sum := sha256.Sum256([]byte(strings.Join(namespaces, "/")))
	return hex.EncodeToString(sum[:6])
}
