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

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// Live reads go to the API server, with the mirror's credentials. The API server
// selects the objects. Requests are built from the query, by [apipath.Path.URL].

var (
	// errStopped ends a read whose caller has left the loop.
	errStopped = errors.New("the caller has left the loop")
	errTimeout = errors.New("it took too long")
)

// kube returns a source of a target in a cluster.
func kube[T any](c *mirror.Cluster, target source.Target, objects codec.Codec[T]) *source.Kube[T] {
	target.Cluster = c.Name()
	return source.NewKube(c.Connection().HTTPClient(), c.Connection().BaseURL(), target, objects)
}

// checkLive returns an error if the query's cluster has no API server to ask.
func (q *Query) checkLive() error {
	if c := q.params.Cluster; c.Origin() != nil {
		return &mirror.Error{Reason: mirror.NotMirrored, Message: fmt.Sprintf("this can only be read from the API server of cluster %s, and this mirror follows the cluster through others: ask a mirror that is connected to the cluster", c.Name())}
	}
	return nil
}

// kube returns a source of the query's objects.
func (q *Query) kube() (*source.Kube[*codec.Raw], error) {
	if err := q.checkLive(); err != nil {
		return nil, err
	}
	objects, err := codec.For[*codec.Raw](q.resource.GVK(), codec.Options{})
	if err != nil {
		return nil, err
	}
	target := source.Target{Resource: q.params.Resource, Kind: q.resource.Kind, Namespace: q.params.Namespace}
	if q.params.Labels != nil {
		target.Labels = q.params.Labels.String()
	}
	if q.params.Fields != nil {
		target.Fields = q.params.Fields.String()
	}
	return kube(q.params.Cluster, target, objects), nil
}

// Upstream returns a request to the API server for the query, with extra parameters, and
// the client that sends it with the mirror's credentials.
func (q *Query) Upstream(ctx context.Context, extra url.Values) (*http.Client, *http.Request, error) {
	if err := q.checkLive(); err != nil {
		return nil, nil, err
	}
	target, err := q.path().URL(q.params.Cluster.Connection().BaseURL())
	if err != nil {
		return nil, nil, err
	}
	values := url.Values{}
	set := func(name, value string) {
		if value != "" {
			values.Set(name, value)
		}
	}
	for name, given := range extra {
		for _, value := range given {
			set(name, value)
		}
	}
	if q.params.Labels != nil {
		set("labelSelector", q.params.Labels.String())
	}
	if q.params.Fields != nil {
		set("fieldSelector", q.params.Fields.String())
	}
	if set("continue", q.params.Continue); q.params.Limit > 0 {
		set("limit", strconv.FormatInt(q.params.Limit, 10))
	}
	target.RawQuery = values.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	return q.params.Cluster.Connection().HTTPClient(), req, err
}

// getLive gets the query's object from the API server.
func (q *Query) getLive(ctx context.Context) (*Object, error) {
	from, err := q.kube()
	if err != nil {
		return nil, err
	}
	ctx, stop := mirror.Either(ctx, q.params.Cluster.Context())
	defer stop()
	o, err := from.Get(ctx, q.params.Name)
	if apierrors.IsNotFound(err) {
		return nil, q.notFound()
	}
	return o, q.params.Cluster.Upstream("", err)
}

// listLive lists the query's objects from the API server, or a page of them if the query
// has a limit, and calls each as they arrive. The token in the result is the API
// server's own.
func (r *Reader) listLive(ctx context.Context, q *Query, each func(*Object) error) (ListMeta, error) {
	from, err := q.kube()
	if err != nil {
		return ListMeta{}, err
	}
	ctx, stop := mirror.Either(ctx, q.params.Cluster.Context())
	defer stop()
	// Once the API server has begun its answer, it may take any time.
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	late := time.AfterFunc(r.opts.Wait, func() { giveUp(errTimeout) })
	defer late.Stop()
	var callers error
	result, err := from.List(ctx, source.ListOptions{Limit: q.params.Limit, Continue: q.params.Continue}, func(o *Object) error {
		late.Stop()
		callers = each(o)
		return callers
	})
	if callers != nil {
		return ListMeta{}, callers
	}
	if err != nil {
		return ListMeta{}, q.params.Cluster.Upstream("", err)
	}
	return ListMeta{ResourceVersion: result.ResourceVersion, Continue: result.Continue, Remaining: result.Remaining}, nil
}

// liveWatch is a watch of the API server.
type liveWatch struct {
	reader  *Reader
	query   *Query
	version string // where to begin; empty: list first
	reset   bool   // send Reset before the list
}

// watchLive begins a watch of the API server. It ends with an error when the connection
// does. A new watch can go on at the resume point of the last event.
func (r *Reader) watchLive(ctx context.Context, q *Query, from resumePoint) (Events, error) {
	w := &liveWatch{reader: r, query: q, version: from.version, reset: from.partial || from.more > 0}
	if w.reset {
		// A resume point within one version refers to the log of the cache.
		w.version = ""
	}
	if w.version == "" {
		// The watch begins with a list. If that is refused, report it before the
		// caller has begun to answer.
		probe := *q
		probe.params.Limit = 1
		if _, err := r.listLive(ctx, &probe, func(*Object) error { return nil }); err != nil {
			return nil, err
		}
	}
	return func(yield func(Event, error) bool) { w.run(ctx, yield) }, nil
}

func (w *liveWatch) run(ctx context.Context, yield func(Event, error) bool) {
	c := w.query.params.Cluster
	ctx, stop := mirror.Either(ctx, c.Context())
	defer stop()
	for ctx.Err() == nil {
		err := w.connect(ctx, func(e Event) error {
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

// connect lists if necessary, and watches until the API server ends the watch.
func (w *liveWatch) connect(ctx context.Context, deliver func(Event) error) error {
	if w.version == "" {
		start := Event{Type: Bookmark, ResumePoint: partial}
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
		if err := deliver(Event{Type: Synced, ResourceVersion: w.version, ResumePoint: w.version}); err != nil {
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
		out.ResumePoint, w.version = out.ResourceVersion, out.ResourceVersion
		return deliver(out)
	})
	if err == nil && silent && time.Since(since) < time.Second {
		return errShort // do not retry without a pause
	}
	return err
}

var errShort = &mirror.Error{Reason: mirror.Unreachable, Message: "the API server ended the watch at once", Retry: time.Second}
