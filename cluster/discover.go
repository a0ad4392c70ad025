package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

const (
	// discoveryTimeout bounds one discovery, in addition to its callers' contexts.
	discoveryTimeout = 32 * time.Second
	// resourcesMaxAge is the maximum age of the result of Cluster.Resources.
	resourcesMaxAge = 30 * time.Second
	// If a resource is not found, discovery is repeated: missBurst times at once,
	// then every missEvery. Many requests for resources that do not exist must not
	// cause as many discoveries.
	missEvery = 2 * time.Second
	missBurst = 5
	// After a failure, discovery is repeated failBurst times at once, then every
	// failEvery, for all callers together: they must not keep the server down.
	failEvery = time.Second
	failBurst = 3
)

// discoverer caches the newest catalogue of a cluster and fetches it on demand,
// with at most one discovery in progress.
type discoverer struct {
	cluster string
	server  string
	client  *discovery.DiscoveryClient
	misses  *rate.Limiter
	fails   *rate.Limiter

	mu       sync.Mutex
	current  *catalogue // nil before the first success and after invalidate
	fetched  time.Time  // when the flight of current began
	number   uint64     // of that flight
	flight   *flight    // the discovery in progress, if any
	started  uint64     // number of the newest flight
	outdated uint64     // invalidate made the flights up to this number stale
	failure  error      // of the newest flight, if it failed and was not canceled
}

// flight is a discovery in progress. cat and err are set before done is closed.
type flight struct {
	number   uint64
	waiters  int  // guarded by discoverer.mu; at 0 the flight is canceled
	canceled bool // guarded by discoverer.mu
	cancel   context.CancelFunc
	done     chan struct{}
	cat      *catalogue
	err      error
}

func newDiscoverer(cluster string, base *url.URL, cfg *rest.Config, client *http.Client) (*discoverer, error) {
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	return &discoverer{
		cluster: cluster,
		server:  base.Redacted(),
		client:  discovery.NewDiscoveryClient(fewRetries{dc.RESTClient()}),
		misses:  rate.NewLimiter(rate.Every(missEvery), missBurst),
		fails:   rate.NewLimiter(rate.Every(failEvery), failBurst),
	}, nil
}

// fewRetries limits client-go's retries of failed connections to one. By default it
// makes ten, one per second, and the caller learns of the failure too late.
type fewRetries struct{ rest.Interface }

func (f fewRetries) Get() *rest.Request { return f.Interface.Get().MaxRetries(1) }

// find looks up a resource in the cached catalogue and, if it is not found, in a
// new one. arg names the resource in errors.
func (d *discoverer) find(ctx context.Context, arg string, lookup func(*catalogue) (Resource, bool)) (Resource, error) {
	cat, fresh, err := d.cached(ctx)
	if err != nil {
		return Resource{}, err
	}
	r, ok := lookup(cat)
	if !ok && !fresh && d.misses.Allow() {
		if cat, err = d.fetch(ctx, newer); err != nil {
			return Resource{}, err
		}
		r, ok = lookup(cat)
	}
	if !ok {
		return Resource{}, &NotFoundError{Cluster: d.cluster, Arg: arg, Similar: cat.similar(arg), Failed: cat.failed}
	}
	return r, nil
}

func (d *discoverer) mirrorable(ctx context.Context) ([]Resource, error) {
	cat, _, err := d.cached(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	old := time.Since(d.fetched) > resourcesMaxAge
	d.mu.Unlock()
	if old {
		renewed, err := d.fetch(ctx, newer)
		if err != nil {
			return cat.mirrorable(), err
		}
		cat = renewed
	}
	return cat.mirrorable(), cat.partial
}

func (d *discoverer) invalidate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = nil
	d.outdated = d.started
}

// cached returns the cached catalogue, or fetches one if there is none; fresh
// reports which. If fetching has failed recently, it returns the same error without
// a request.
func (d *discoverer) cached(ctx context.Context) (cat *catalogue, fresh bool, err error) {
	d.mu.Lock()
	cat, err = d.current, d.failure
	d.mu.Unlock()
	if cat != nil {
		return cat, false, nil
	}
	if err != nil && !d.fails.Allow() {
		return nil, false, err
	}
	cat, err = d.fetch(ctx, inProgress)
	return cat, true, err
}

// Arguments of fetch.
const (
	inProgress = false // a discovery that is in progress already will do
	newer      = true  // only one that began after the call: it has everything the caller knows to exist
)

// fetch returns a new catalogue. Concurrent callers share flights.
func (d *discoverer) fetch(ctx context.Context, newer bool) (*catalogue, error) {
	d.mu.Lock()
	wanted := d.started + 1
	if f := d.flight; !newer && f != nil && !f.canceled && f.number > d.outdated {
		wanted = f.number
	}
	for {
		if d.current != nil && d.number >= wanted { // another caller's
			cat := d.current
			d.mu.Unlock()
			return cat, nil
		}
		f := d.flight
		if f == nil {
			f = d.start(ctx)
		}
		f.waiters++
		d.mu.Unlock()
		var left error
		select {
		case <-f.done:
		case <-ctx.Done():
			left = context.Cause(ctx)
		}
		d.mu.Lock()
		if f.waiters--; f.waiters == 0 {
			f.cancel() // it has finished, or its last waiter has left
			f.canceled = true
		}
		if left != nil {
			d.mu.Unlock()
			return nil, d.failed(left)
		}
		if f.number >= wanted {
			d.mu.Unlock()
			return f.cat, f.err
		}
	}
}

// start begins a flight. Its context outlives the caller's, because other callers
// may join; the last one to leave cancels it. d.mu is held.
func (d *discoverer) start(ctx context.Context) *flight {
	d.started++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discoveryTimeout)
	f := &flight{number: d.started, cancel: cancel, done: make(chan struct{})}
	d.flight = f
	previous, begun := d.current, time.Now()
	go func() {
		f.cat, f.err = d.discover(ctx, previous)
		d.mu.Lock()
		d.flight, d.failure = nil, nil
		if f.err != nil && !f.canceled {
			d.failure = f.err
		}
		if f.err == nil && f.number > d.outdated {
			d.current, d.fetched, d.number = f.cat, begun, f.number
		}
		d.mu.Unlock()
		close(f.done)
	}()
	return f
}

// discover makes the requests. discovery.ServerGroupsAndResourcesWithContext uses
// aggregated discovery if the server supports it, and otherwise the older protocol.
// The client's method of that name is not used because it retries everything when
// a part fails.
func (d *discoverer) discover(ctx context.Context, previous *catalogue) (*catalogue, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, d.client)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && (!errors.As(err, &partial) || ctx.Err() != nil) {
		return nil, d.failed(err)
	}
	if partial == nil {
		return newCatalogue(groups, lists, nil, previous), nil
	}
	cat := newCatalogue(groups, lists, partial.Groups, previous)
	if len(cat.all) == 0 { // everything failed
		return nil, d.failed(err)
	}
	cat.partial = d.failed(err)
	return cat, nil
}

func (d *discoverer) failed(err error) error {
	return &discoveryError{d.cluster, d.server, err}
}

// discoveryError is the error of a discovery that failed.
type discoveryError struct {
	cluster, server string
	err             error
}

func (e *discoveryError) Error() string {
	return fmt.Sprintf("cluster %q: discover what %s serves: %v", e.cluster, e.server, e.err)
}

func (e *discoveryError) Unwrap() error { return e.err }
