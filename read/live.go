package read

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
	"github.com/tidings-io/tidings/mirror"
)

// Reads that go straight to the API server, with the mirror's credentials. Selecting
// is the server's. Requests are built from the query, by [apipath.Path.URL].

var (
	// errStopped is what a caller's loop that was left looks like from inside.
	errStopped = fmt.Errorf("the caller wants no more")
	errWaited  = errors.New("it took too long")
)

// kube reads a target of a cluster.
func kube[T any](c *mirror.Cluster, target source.Target, objects codec.Codec[T]) *source.Kube[T] {
	target.Cluster = c.Name()
	return source.NewKube(c.Connection().HTTPClient(), c.Connection().BaseURL(), target, objects)
}

// kube reads what the query asks for.
func (q *Query) kube() (*source.Kube[*codec.Raw], error) {
	objects, err := codec.For[*codec.Raw](q.resource.GVK(), codec.Options{})
	if err != nil {
		return nil, err
	}
	target := source.Target{Resource: q.ask.Resource, Kind: q.resource.Kind, Namespace: q.ask.Namespace}
	if q.ask.Labels != nil {
		target.Labels = q.ask.Labels.String()
	}
	if q.ask.Fields != nil {
		target.Fields = q.ask.Fields.String()
	}
	return kube(q.ask.Cluster, target, objects), nil
}

// Upstream makes the request to the API server for what the query asks for, with some
// more parameters, and returns the client that sends it with the mirror's credentials.
func (q *Query) Upstream(ctx context.Context, params url.Values) (*http.Client, *http.Request, error) {
	target, err := q.path().URL(q.ask.Cluster.Connection().BaseURL())
	if err != nil {
		return nil, nil, err
	}
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, given := range params {
		for _, value := range given {
			set(name, value)
		}
	}
	if q.ask.Labels != nil {
		set("labelSelector", q.ask.Labels.String())
	}
	if q.ask.Fields != nil {
		set("fieldSelector", q.ask.Fields.String())
	}
	if set("continue", q.ask.Continue); q.ask.Limit > 0 {
		set("limit", strconv.FormatInt(q.ask.Limit, 10))
	}
	target.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	return q.ask.Cluster.Connection().HTTPClient(), req, err
}

// getLive returns the query's object as the cluster has it.
func (q *Query) getLive(ctx context.Context) (*Object, error) {
	from, err := q.kube()
	if err != nil {
		return nil, err
	}
	ctx, stop := mirror.Either(ctx, q.ask.Cluster.Context())
	defer stop()
	o, err := from.Get(ctx, q.ask.Name)
	if apierrors.IsNotFound(err) {
		return nil, q.missing()
	}
	return o, q.ask.Cluster.Upstream("", err)
}

// listLive calls each for the objects as they arrive, a page of them if the query
// has a limit. The token in meta is the API server's own.
func (r *Reader) listLive(ctx context.Context, q *Query, each func(*Object) error) (ListMeta, error) {
	from, err := q.kube()
	if err != nil {
		return ListMeta{}, err
	}
	ctx, stop := mirror.Either(ctx, q.ask.Cluster.Context())
	defer stop()
	// Who has answered at all may take its time.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	late := time.AfterFunc(r.opts.Wait, func() { giveUp(errWaited) })
	defer late.Stop()
	var callers error
	result, err := from.List(ctx, source.ListOptions{Limit: q.ask.Limit, Continue: q.ask.Continue}, func(o *Object) error {
		late.Stop()
		callers = each(o)
		return callers
	})
	if callers != nil {
		return ListMeta{}, callers
	}
	if err != nil {
		return ListMeta{}, q.ask.Cluster.Upstream("", err)
	}
	return ListMeta{ResourceVersion: result.ResourceVersion, Continue: result.Continue, Remaining: result.Remaining}, nil
}

// liveWatch is a watch of the API server.
type liveWatch struct {
	reader  *Reader
	query   *Query
	version string // to watch from; empty: list first
	reset   bool   // say so before listing
}

// watchLive begins a watch of the API server. It ends with an error when the
// connection does; the position of the last event is good for going on.
func (r *Reader) watchLive(ctx context.Context, q *Query, from position) (Events, error) {
	w := &liveWatch{reader: r, query: q, version: from.version, reset: from.begun || from.more > 0}
	if w.reset {
		// A position between two changes of one version is of the cache's log.
		w.version = ""
	}
	if w.version == "" {
		// Everything there is will be listed; a list that is refused is better
		// known before the caller has begun to answer.
		probe := *q
		probe.ask.Limit = 1
		if _, err := r.listLive(ctx, &probe, func(*Object) error { return nil }); err != nil {
			return nil, err
		}
	}
	return func(yield func(Event, error) bool) { w.run(ctx, yield) }, nil
}

func (w *liveWatch) run(ctx context.Context, yield func(Event, error) bool) {
	c := w.query.ask.Cluster
	ctx, stop := mirror.Either(ctx, c.Context())
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
			yield(Event{}, c.Upstream("", err))
			return
		}
	}
	if why := context.Cause(c.Context()); why != nil {
		yield(Event{}, why)
	}
}

// round lists if need be, and watches until the server ends it.
func (w *liveWatch) round(ctx context.Context, deliver func(Event) error) error {
	if w.version == "" {
		start := Event{Type: Bookmark, Position: begun}
		if w.reset {
			start.Type = Reset
		}
		if err := deliver(start); err != nil {
			return err
		}
		meta, err := w.reader.listLive(ctx, w.query, func(o *Object) error { return deliver(Event{Type: Added, Object: o}) })
		if err != nil {
			return err
		}
		w.version, w.reset = meta.ResourceVersion, true
		if err := deliver(Event{Type: Synced, ResourceVersion: w.version, Position: w.version}); err != nil {
			return err
		}
	}
	from, err := w.query.kube()
	if err != nil {
		return err
	}
	since, silent := time.Now(), true
	err = from.Watch(ctx, source.WatchOptions{ResourceVersion: w.version}, func(e source.Event[*codec.Raw]) error {
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
		return deliver(out)
	})
	if err == nil && silent && time.Since(since) < time.Second {
		return errShort // or this would be a storm of requests
	}
	return err
}

var errShort = &mirror.Error{Reason: mirror.Unreachable, Message: "the API server ended the watch at once", Retry: time.Second}
