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
	// discoveryTimeout bounds one discovery, however patient its callers are.
	discoveryTimeout = 32 * time.Second
	// listedFor is how old a list of everything may be.
	listedFor = 30 * time.Second
	// Something not found is looked for again on the server: missBurst times at
	// once, then every missEvery. A storm of questions for what does not exist
	// must not become a storm of discoveries.
	missEvery = 2 * time.Second
	missBurst = 5
	// A server that could not be asked is asked again as often, by all together:
	// those who wait for it must not be what keeps it down.
	failEvery = time.Second
	failBurst = 3
)

// discoverer keeps the newest catalogue of one cluster and fetches it on demand,
// with at most one discovery under way.
type discoverer struct {
	cluster string
	server  string
	client  *discovery.DiscoveryClient
	misses  *rate.Limiter
	fails   *rate.Limiter

	mu       sync.Mutex
	current  *catalogue // nil before the first success and after invalidate
	taken    time.Time  // when current was asked for
	number   uint64     // of the flight that brought it
	flight   *flight    // the discovery under way, if any
	started  uint64     // number of the newest flight
	outdated uint64     // flights up to this number were made stale by invalidate
	failure  error      // of the newest flight, if it came to an end without a catalogue
}

// flight is one discovery under way. cat and err are set before done closes.
type flight struct {
	number  uint64
	waiters int  // under discoverer.mu; at 0 the flight is called off
	off     bool // under discoverer.mu
	cancel  context.CancelFunc
	done    chan struct{}
	cat     *catalogue
	err     error
}

func newDiscoverer(cluster string, base *url.URL, cfg *rest.Config, client *http.Client) (*discoverer, error) {
	dc, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, client)
	if err != nil {
		return nil, err
	}
	return &discoverer{
		cluster: cluster,
		server:  base.Redacted(),
		client:  discovery.NewDiscoveryClient(impatient{dc.RESTClient()}),
		misses:  rate.NewLimiter(rate.Every(missEvery), missBurst),
		fails:   rate.NewLimiter(rate.Every(failEvery), failBurst),
	}, nil
}

// impatient keeps client-go from trying a broken connection ten more times, for
// ten seconds: callers are to know.
type impatient struct{ rest.Interface }

func (i impatient) Get() *rest.Request { return i.Interface.Get().MaxRetries(1) }

// find looks in the catalogue at hand and, when that does not know the answer,
// in a new one.
func (d *discoverer) find(ctx context.Context, asked string, look func(*catalogue) (Resource, bool)) (Resource, error) {
	cat, fresh, err := d.known(ctx)
	if err != nil {
		return Resource{}, err
	}
	r, ok := look(cat)
	if !ok && !fresh && d.misses.Allow() {
		if cat, err = d.fetch(ctx, newer); err != nil {
			return Resource{}, err
		}
		r, ok = look(cat)
	}
	if !ok {
		return Resource{}, &NotFoundError{Cluster: d.cluster, Asked: asked, Similar: cat.similar(asked), Failed: cat.failed}
	}
	return r, nil
}

func (d *discoverer) mirrorable(ctx context.Context) ([]Resource, error) {
	cat, _, err := d.known(ctx)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	old := time.Since(d.taken) > listedFor
	d.mu.Unlock()
	if old {
		now, err := d.fetch(ctx, newer)
		if err != nil {
			return cat.mirrorable(), err
		}
		cat = now
	}
	return cat.mirrorable(), cat.partial
}

func (d *discoverer) invalidate() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.current = nil
	d.outdated = d.started
}

// known returns the catalogue at hand, or else fetches the first one; fresh says
// that it was fetched for this call. Where that has failed of late, it fails again
// without asking.
func (d *discoverer) known(ctx context.Context) (cat *catalogue, fresh bool, err error) {
	d.mu.Lock()
	cat, err = d.current, d.failure
	d.mu.Unlock()
	if cat != nil {
		return cat, false, nil
	}
	if err != nil && !d.fails.Allow() {
		return nil, false, err
	}
	cat, err = d.fetch(ctx, underWay)
	return cat, true, err
}

// What a caller of fetch is content with.
const (
	underWay = false // the answer of a discovery that is under way already
	newer    = true  // one asked for after the call began: it holds what the caller knows to exist
)

// fetch returns a new catalogue. Concurrent callers share flights.
func (d *discoverer) fetch(ctx context.Context, newer bool) (*catalogue, error) {
	d.mu.Lock()
	wanted := d.started + 1
	if f := d.flight; !newer && f != nil && !f.off && f.number > d.outdated {
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
		var gone error
		select {
		case <-f.done:
		case <-ctx.Done():
			gone = context.Cause(ctx)
		}
		d.mu.Lock()
		if f.waiters--; f.waiters == 0 {
			f.cancel() // finished, or called off by the last to leave
			f.off = true
		}
		if gone != nil {
			d.mu.Unlock()
			return nil, d.failed(gone)
		}
		if f.number >= wanted {
			d.mu.Unlock()
			return f.cat, f.err
		}
	}
}

// start begins a flight. Its context outlives the caller that began it, because
// others may have joined; the last one to leave calls it off. d.mu is held.
func (d *discoverer) start(ctx context.Context) *flight {
	d.started++
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discoveryTimeout)
	f := &flight{number: d.started, cancel: cancel, done: make(chan struct{})}
	d.flight = f
	before, taken := d.current, time.Now()
	go func() {
		f.cat, f.err = d.discover(ctx, before)
		d.mu.Lock()
		d.flight, d.failure = nil, nil
		if f.err != nil && !f.off {
			d.failure = f.err
		}
		if f.err == nil && f.number > d.outdated {
			d.current, d.taken, d.number = f.cat, taken, f.number
		}
		d.mu.Unlock()
		close(f.done)
	}()
	return f
}

// discover asks the server. discovery.ServerGroupsAndResourcesWithContext takes
// aggregated discovery where the server has it and the older protocol where not;
// the client's method of that name is not used because it tries three times over
// when a part fails.
func (d *discoverer) discover(ctx context.Context, before *catalogue) (*catalogue, error) {
	groups, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, d.client)
	var partial *discovery.ErrGroupDiscoveryFailed
	if err != nil && (!errors.As(err, &partial) || ctx.Err() != nil) {
		return nil, d.failed(err)
	}
	if partial == nil {
		return newCatalogue(groups, lists, nil, before), nil
	}
	cat := newCatalogue(groups, lists, partial.Groups, before)
	if len(cat.all) == 0 { // nothing but failures
		return nil, d.failed(err)
	}
	cat.partial = d.failed(err)
	return cat, nil
}

func (d *discoverer) failed(err error) error {
	return &undiscovered{d.cluster, d.server, err}
}

// undiscovered is the error of a cluster that did not say what it serves.
type undiscovered struct {
	cluster, server string
	err             error
}

func (u *undiscovered) Error() string {
	return fmt.Sprintf("cluster %q: discover what %s serves: %v", u.cluster, u.server, u.err)
}

func (u *undiscovered) Unwrap() error { return u.err }
