package read

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
)

// Options configure a [Reader]. The zero value is usable.
type Options struct {
	// PageTTL is how long the state of a continue token is kept after its last use.
	// 0 means 5 minutes.
	PageTTL time.Duration
	// MaxPages bounds the number of such states, MaxPagesPerCaller the number for one
	// caller. If a caller has too many, its least recently used one is dropped. If
	// there are too many in all, the caller with the most loses its least recently
	// used one. 0 means 100, and a tenth of MaxPages.
	MaxPages, MaxPagesPerCaller int
	// History, if not nil, has the past of the mirrored resources, for queries of a
	// moment and for versions that the mirror does not retain.
	History *history.Recording
	// Wait is how long the API server may take to begin its answer to a live read.
	// 0 means 20 seconds.
	Wait time.Duration
}

// Reader answers queries. Its methods are safe for concurrent use.
type Reader struct {
	opts  Options
	pages *pages

	mu    sync.Mutex
	feeds map[*mirror.Informer]*feed
}

// New returns a reader. It starts no goroutines: the informers belong to the mirror
// and end with it.
func New(opts Options) *Reader {
	if opts.PageTTL <= 0 {
		opts.PageTTL = 5 * time.Minute
	}
	if opts.MaxPages <= 0 {
		opts.MaxPages = 100
	}
	if opts.MaxPagesPerCaller <= 0 {
		opts.MaxPagesPerCaller = max(1, opts.MaxPages/10)
	}
	if opts.Wait <= 0 {
		opts.Wait = 20 * time.Second
	}
	return &Reader{
		opts: opts, pages: newPages(opts.PageTTL, opts.MaxPages, opts.MaxPagesPerCaller),
		feeds: map[*mirror.Informer]*feed{},
	}
}

type callerKey struct{}

// WithCaller returns a context whose reads are made for a caller, a user of a cluster.
// The reader accounts the states it keeps to callers.
func WithCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf returns the caller set by [WithCaller], or "".
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// feed is an informer with the reader's state for it.
type feed struct {
	*mirror.Informer
	selectors      selectorCache
	live           atomic.Int32 // live lists in progress, see tryLive
	latest, proofs batch[uint64]
	gets           batches[types.NamespacedName, *Object] // live gets; nil: no such object
}

// ready returns the feed for a query once its informer has its first list.
func (r *Reader) ready(ctx context.Context, q *Query) (*feed, error) {
	if err := q.checkOffered(ctx); err != nil {
		return nil, err
	}
	inf, err := q.params.Cluster.Ready(ctx, q.resource, q.params.Namespace)
	if err != nil {
		return nil, err
	}
	return r.feed(inf), nil
}

// feed returns the feed of an informer.
func (r *Reader) feed(inf *mirror.Informer) *feed {
	r.mu.Lock()
	f := r.feeds[inf]
	made := f == nil
	if made {
		f = &feed{Informer: inf}
		f.latest = batch[uint64]{call: f.fetchLatest, ctx: inf.Context()}
		f.proofs = batch[uint64]{call: f.prove, ctx: inf.Context()}
		f.gets = batches[types.NamespacedName, *Object]{call: f.getLive, ctx: inf.Context(), max: maxGets}
		r.feeds[inf] = f
	}
	r.mu.Unlock()
	if made {
		inf.AtEnd(func() {
			r.pages.clear(f)
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.feeds, inf)
		})
	}
	return f
}

// pin returns a view of the newest state. The caller must release it.
func (r *Reader) pin(ctx context.Context, q *Query) (*feed, *informer.View[*codec.Raw], error) {
	for {
		f, err := r.ready(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		view := f.Engine().View()
		if view.Synced() {
			return f, view, nil
		}
		view.Release() // the informer has just been emptied
	}
}

// during runs do with a context that also ends with the feed's informer. If the
// informer has ended, the error is the cause of its context.
func (f *feed) during(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := mirror.Either(ctx, f.Context())
	defer stop()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// Namespaces lists the namespaces that have objects of the query's resource, sorted,
// and at most limit of them; more reports whether there are others. It waits for the
// first list as [Reader.State] does.
func (r *Reader) Namespaces(ctx context.Context, q *Query, limit int) (found []string, more bool, err error) {
	own := *q // others may be using q
	_, view, err := r.pin(ctx, &own)
	if err != nil {
		return nil, false, err
	}
	defer view.Release()
	found, more = namespaces(view, limit)
	return found, more, nil
}

// Get returns one object and the version of the state it was found in: a state that
// matches, where match must not be [Exact], or the state of the cluster for a live
// query.
func (r *Reader) Get(ctx context.Context, q *Query, match Match, version uint64) (o *Object, at string, err error) {
	if q.params.At != nil {
		o, past, err := r.GetPast(q)
		return o, past.ResourceVersion, err
	}
	if q.params.Source == Live {
		if err := q.checkOffered(ctx); err != nil {
			return nil, "", err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Wait, errTimeout)
		defer cancel()
		if o, err = q.getLive(ctx); err != nil {
			return nil, "", err
		}
		return o, o.GetResourceVersion(), nil
	}
	if match == Latest {
		o, at, err = r.newest(ctx, q)
	} else {
		o, at, err = r.find(ctx, q, match, version)
	}
	if err == nil && o == nil {
		err = q.notFound()
	}
	return o, at, err
}

// find returns the object of a query in a state that matches, nil if there is none.
func (r *Reader) find(ctx context.Context, q *Query, match Match, version uint64) (*Object, string, error) {
	s, err := r.State(ctx, q, match, version)
	if err != nil {
		return nil, "", err
	}
	defer s.Release()
	o, _ := s.Get(q.params.Namespace, q.params.Name)
	return o, s.ResourceVersion(), nil
}
