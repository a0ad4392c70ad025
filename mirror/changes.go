package mirror

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/object"
)

// Changes yields what happens to a resource as its informer tells it, of all
// namespaces and unselected; see [Query.Matches]. It ends with ctx, or when the
// cluster or the resource is gone: then why says so.
type Changes struct {
	// Events is for one loop.
	Events iter.Seq[informer.Event[*Object]]
	keeper *keeper
}

// Why is the reason for which the loop has ended, nil if it is the caller's.
func (c *Changes) Why() error { return context.Cause(c.keeper.ctx) }

// Version is the resourceVersion that the mirror has come to.
func (c *Changes) Version() uint64 { return c.keeper.version() }

// Changes begins with a state that matches, as for [Mirror.State], all of it
// told as Added events and closed by a Synced one. With [Exact] it begins behind
// the version and tells no state; the error is an [*Error] of reason [Expired] if
// the mirror does not know any more what happened since. A version that is of the
// future is allowed: what happens up to it is not told. Version 0 begins with
// what comes next.
func (m *Mirror) Changes(ctx context.Context, q Query, match Match, version uint64) (*Changes, error) {
	need := match
	if match == Exact {
		need = Any
	}
	k, err := m.at(ctx, q, need, version)
	if err != nil {
		return nil, err
	}
	ctx, stop := either(ctx, k.ctx)
	events, ahead := k.informer.Events(ctx, k.following()...), false
	if match == Exact {
		if events, ahead, err = k.since(ctx, version); err != nil {
			stop()
			return nil, err
		}
	}
	return &Changes{keeper: k, Events: func(yield func(informer.Event[*Object]) bool) {
		defer stop()
		defer k.use.begin()()
		for e := range events {
			if k.ctx.Err() != nil {
				return // what comes now is the store being emptied
			}
			if ahead && e.Type != informer.Synced {
				if v := object.Version(e.ResourceVersion()); v < version || v == version && e.Object != nil {
					continue
				}
				ahead = false
			}
			if !yield(e) {
				return
			}
		}
	}}, nil
}

// since follows what happens behind a version; ahead says that the mirror has
// not come to it. Version 0 is that which it is at.
func (k *keeper) since(ctx context.Context, version uint64) (events iter.Seq[informer.Event[*Object]], ahead bool, err error) {
	for range 100 { // it fails only if the informer lists anew at this very moment
		from, now := version, k.version()
		if ahead = now < version; ahead || version == 0 {
			from = now
		}
		events, err = k.informer.EventsSince(ctx, decimal(from), k.following()...)
		if err == nil {
			return events, ahead, nil
		}
		if !ahead && version != 0 {
			break
		}
	}
	if why := context.Cause(k.ctx); why != nil {
		return nil, false, why
	}
	if errors.Is(err, informer.ErrExpired) {
		err = &Error{Reason: Expired, Err: err, Message: fmt.Sprintf("too old resource version: %d (%d)", version, k.version())}
	}
	return nil, false, err
}

// Matches says whether an object is in the query's namespace and selected by it.
func (q *Query) Matches(o *Object) bool { return q.matches(o) }
