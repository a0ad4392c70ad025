package read

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/mirror"
)

// Options of a [Reader]. The zero value is usable.
type Options struct {
	// PageTTL is how long the state behind a continue token is held after its
	// last use. 0 means 5 minutes.
	PageTTL time.Duration
	// MaxPages is how many such states are held at most, and MaxPagesPerCaller how
	// many of them for one caller; that one's state which was used longest ago gives
	// way, and if all are too many, one of the caller with the most. 0 means 100, and
	// a tenth of MaxPages.
	MaxPages, MaxPagesPerCaller int
	// Wait is how long the API server may take to begin its answer to a read that
	// goes straight to it. 0 means 20 seconds.
	Wait time.Duration
}

// Reader answers queries. All methods may be called from any number of goroutines.
type Reader struct {
	opts  Options
	pages *pages

	mu    sync.Mutex
	feeds map[*mirror.Informer]*feed
}

// New makes a reader. It starts nothing: the informers are the mirror's, and end
// with it.
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

// WithCaller says on whose behalf a context's reads are, for what is held for one
// caller: a user of a cluster.
func WithCaller(ctx context.Context, caller string) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf is the caller that [WithCaller] has named.
func CallerOf(ctx context.Context) string {
	caller, _ := ctx.Value(callerKey{}).(string)
	return caller
}

// feed is what a reader has of an informer.
type feed struct {
	*mirror.Informer
	selectors    selectorCache
	live         atomic.Int32 // reads under way that go past the mirror, see tryLive
	asks, proofs batch[uint64]
	gets         batches[types.NamespacedName, *Object] // single objects as they are now; nil: there is none
}

// ready returns the feed that answers a query once it has its first list.
func (r *Reader) ready(ctx context.Context, q *Query) (*feed, error) {
	if err := q.offered(ctx); err != nil {
		return nil, err
	}
	inf, err := q.ask.Cluster.Ready(ctx, q.resource, q.ask.Namespace)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	f := r.feeds[inf]
	made := f == nil
	if made {
		f = &feed{Informer: inf}
		f.asks = batch[uint64]{ask: f.ask, ctx: inf.Context()}
		f.proofs = batch[uint64]{ask: f.prove, ctx: inf.Context()}
		f.gets = batches[types.NamespacedName, *Object]{ask: f.getLive, ctx: inf.Context(), most: getsAtOnce}
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
	return f, nil
}

// pin returns the newest state, to be released.
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
		view.Release() // emptied this very moment
	}
}

// during runs do with a context that also ends with the feed's informer. If that has
// ended, the error is its cause.
func (f *feed) during(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := mirror.Either(ctx, f.Context())
	defer stop()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// Namespaces lists the namespaces that hold objects of the query's resource at the
// moment, sorted, and most of them at most; more says that there are others. It
// waits for the first list as [Reader.State] does.
func (r *Reader) Namespaces(ctx context.Context, q *Query, most int) (found []string, more bool, err error) {
	own := *q // others may use it at this time
	_, view, err := r.pin(ctx, &own)
	if err != nil {
		return nil, false, err
	}
	defer view.Release()
	found, more = namespaces(view, most)
	return found, more, nil
}

// Get returns one object and the version of the state it was found in: of a state
// that matches, which is not [Exact], or straight from the cluster.
func (r *Reader) Get(ctx context.Context, q *Query, match Match, version uint64) (o *Object, at string, err error) {
	if q.ask.Source == Live {
		if err := q.offered(ctx); err != nil {
			return nil, "", err
		}
		ctx, cancel := context.WithTimeoutCause(ctx, r.opts.Wait, errWaited)
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
		err = q.missing()
	}
	return o, at, err
}

// find returns the object of a query in a state that matches; nil if there is none.
func (r *Reader) find(ctx context.Context, q *Query, match Match, version uint64) (*Object, string, error) {
	s, err := r.State(ctx, q, match, version)
	if err != nil {
		return nil, "", err
	}
	defer s.Release()
	o, _ := s.Get(q.ask.Namespace, q.ask.Name)
	return o, s.ResourceVersion(), nil
}
