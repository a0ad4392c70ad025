package mirror

import (
	"context"
	"fmt"
	"iter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// live answers straight from the API server. Selecting is the server's.
type live struct{ mirror *Mirror }

// errStopped is what a caller's loop that was left looks like from inside.
var errStopped = fmt.Errorf("the caller wants no more")

func (l live) source(q Query, verb string) (*source.Kube[*codec.Raw], error) {
	if !q.Resource.Can(verb) {
		return nil, &Error{Reason: NotOffered, Message: fmt.Sprintf("the verb %s is not offered for %s", verb, q.Target)}
	}
	objects, err := codec.For[*codec.Raw](q.Resource.GVK(), codec.Options{})
	if err != nil {
		return nil, err
	}
	target := source.Target{Cluster: q.Cluster(), Resource: q.Resource.GVR(), Kind: q.Resource.Kind, Namespace: q.Namespace}
	if q.Labels != nil {
		target.Labels = q.Labels.String()
	}
	if q.Fields != nil {
		target.Fields = q.Fields.String()
	}
	return source.NewKube(q.member.cluster.HTTPClient(), q.member.cluster.BaseURL(), target, objects), nil
}

// Get implements [Data].
func (l live) Get(ctx context.Context, q Query) (*Object, string, error) {
	src, err := l.source(q, "get")
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, l.mirror.opts.Wait, errWaited)
	defer cancel()
	ctx, stop := either(ctx, q.member.ctx)
	defer stop()
	o, err := src.Get(ctx, q.Name)
	if apierrors.IsNotFound(err) {
		return nil, "", missing(q)
	}
	if err != nil {
		return nil, "", upstream("", err)
	}
	return o, o.GetResourceVersion(), nil
}

// List implements [Data]. Objects are told as they arrive.
func (l live) List(ctx context.Context, q Query, each func(*Object) error) (ListMeta, error) {
	src, err := l.source(q, "list")
	if err != nil {
		return ListMeta{}, err
	}
	opts := source.ListOptions{Limit: q.Limit}
	if q.Continue != "" {
		at, err := l.mirror.tokens.open(q)
		if err != nil {
			return ListMeta{}, err
		}
		opts.Continue = at.upstream
	}
	ctx, stop := either(ctx, q.member.ctx)
	defer stop()
	begun, giveUp := l.patience(&ctx)
	defer giveUp()
	var callers error
	result, err := src.List(ctx, opts, func(o *Object) error {
		begun()
		callers = each(o)
		return callers
	})
	if callers != nil {
		return ListMeta{}, callers
	}
	if err != nil {
		return ListMeta{}, upstream("", err)
	}
	meta := ListMeta{ResourceVersion: result.ResourceVersion, Remaining: result.Remaining}
	if result.Continue != "" {
		meta.Continue = l.mirror.tokens.seal(q, position{upstream: result.Continue})
	}
	return meta, nil
}

// patience ends a context if its request has brought nothing in due time.
func (l live) patience(ctx *context.Context) (begun, cancel func()) {
	limited, end := context.WithCancelCause(*ctx)
	*ctx = limited
	timer := time.AfterFunc(l.mirror.opts.Wait, func() { end(errWaited) })
	return func() { timer.Stop() }, func() {
		timer.Stop()
		end(nil)
	}
}

// Watch implements [Data]. It ends with an error when the connection does; the
// position of the last event is good for going on.
func (l live) Watch(ctx context.Context, q Query, since string) (iter.Seq2[Event, error], error) {
	src, err := l.source(q, "watch")
	if err != nil {
		return nil, err
	}
	from := place{}
	if since != "" {
		if from, err = parsePlace(since); err != nil {
			return nil, err
		}
	}
	w := &liveWatch{live: l, query: q, source: src, version: from.version, reset: since == begun}
	if since == "" || since == begun {
		w.version = ""
	}
	// A position between two changes of one version is of the cache's log; the
	// API server's tells both again.
	if from.more > 0 {
		w.version, w.reset = "", true
	}
	if w.version == "" {
		// Everything there is will be listed; a list that is refused is better
		// known before the caller has begun to answer.
		probe := q
		probe.Limit = 1
		if _, err := l.List(ctx, probe, func(*Object) error { return nil }); err != nil {
			return nil, err
		}
	}
	return func(yield func(Event, error) bool) { w.run(ctx, yield) }, nil
}

type liveWatch struct {
	live    live
	query   Query
	source  *source.Kube[*codec.Raw]
	version string // to watch from; empty: list first
	reset   bool   // say so before listing
}

func (w *liveWatch) run(ctx context.Context, yield func(Event, error) bool) {
	ctx, stop := either(ctx, w.query.member.ctx)
	defer stop()
	for ctx.Err() == nil {
		err := w.round(ctx, func(e Event) error {
			if !yield(e, nil) {
				return errStopped
			}
			return nil
		})
		switch {
		case err == errStopped:
			return
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			w.version, w.reset = "", true
		case err != nil && ctx.Err() == nil:
			yield(Event{}, upstream("", err))
			return
		}
	}
	if why := context.Cause(w.query.member.ctx); why != nil {
		yield(Event{}, why)
	}
}

// round lists if need be, and watches until the server ends it.
func (w *liveWatch) round(ctx context.Context, tell func(Event) error) error {
	if w.version == "" {
		start := Event{Type: Bookmark, Position: begun}
		if w.reset {
			start.Type = Reset
		}
		if err := tell(start); err != nil {
			return err
		}
		var callers error
		meta, err := w.live.List(ctx, w.query, func(o *Object) error {
			callers = tell(Event{Type: Added, Object: o})
			return callers
		})
		if err != nil {
			return err
		}
		w.version, w.reset = meta.ResourceVersion, true
		if err := tell(Event{Type: Synced, ResourceVersion: w.version, Position: w.version}); err != nil {
			return err
		}
	}
	since, silent := time.Now(), true
	err := w.source.Watch(ctx, source.WatchOptions{ResourceVersion: w.version}, func(e source.Event[*codec.Raw]) error {
		silent = false
		out := Event{Object: e.Object}
		switch e.Type {
		case source.Added:
			out.Type = Added
		case source.Modified:
			out.Type = Modified
		case source.Deleted:
			out.Type = Deleted
		default:
			out.Type, out.Object, out.ResourceVersion = Bookmark, nil, e.ResourceVersion
		}
		if out.Object != nil {
			out.ResourceVersion = out.Object.GetResourceVersion()
		}
		out.Position, w.version = out.ResourceVersion, out.ResourceVersion
		return tell(out)
	})
	if err == nil && silent && time.Since(since) < time.Second {
		return errShort // or this would be a storm of requests
	}
	return err
}

var errShort = &Error{Reason: Unreachable, Message: "the API server ended the watch at once", Retry: time.Second}
