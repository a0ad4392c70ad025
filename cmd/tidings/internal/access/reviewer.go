package access

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// Gate holds the reviewers of a mirror's clusters.
type Gate struct {
	options     Options
	authorities *authorities // of Options.ClientCAFile; nil if there is none

	mu        sync.Mutex
	reviewers map[*cluster.Cluster]*Reviewer
}

// NewGate makes a gate. It reads [Options.ClientCAFile] and sends no request.
func NewGate(options Options) (*Gate, error) {
	g := &Gate{options: options.withDefaults(), reviewers: map[*cluster.Cluster]*Reviewer{}}
	if options.ClientCAFile != "" {
		g.authorities = fileAuthorities(options.ClientCAFile)
		if _, err := g.authorities.get(context.Background()); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Reviewer returns the reviewer of a cluster, the same one for each call. When it makes
// a new one, it drops the reviewers of clusters that are no longer used, with their
// caches.
func (g *Gate) Reviewer(c *cluster.Cluster, used func(*cluster.Cluster) bool) (*Reviewer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.reviewers[c]; r != nil {
		return r, nil
	}
	for old, r := range g.reviewers {
		if !used(old) {
			delete(g.reviewers, old)
			r.anonymous.CloseIdleConnections()
		}
	}
	r, err := newReviewer(g, c)
	if err != nil {
		return nil, err
	}
	g.reviewers[c] = r
	return r, nil
}

// Close closes idle connections.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.reviewers {
		r.anonymous.CloseIdleConnections()
	}
}

// Reviewer authenticates and authorizes the callers of one cluster.
type Reviewer struct {
	name      string
	options   Options
	log       *slog.Logger
	warnLimit *rate.Limiter // an unavailable cluster would fill the log

	authentication rest.Interface // with the mirror's credentials
	authorization  rest.Interface
	anonymous      *http.Client // without credentials: callers' are added
	baseURL        string

	authorities *authorities
	// The values are nil for credentials that are not accepted.
	tokens, certificates *cache[*Caller]
	rights               *cache[decision]
	deniedNamespaces     *fairLRU[time.Time] // when to review again; see AllowedNamespaces
	lost                 atomic.Uint64
}

func newReviewer(g *Gate, c *cluster.Cluster) (*Reviewer, error) {
	fail := func(err error) (*Reviewer, error) {
		return nil, fmt.Errorf("cluster %q: prepare to review callers: %w", c.Name(), err)
	}
	seats := newSeatPool(g.options.MaxReviews)
	r := &Reviewer{
		name: c.Name(), options: g.options, log: g.options.Logger,
		warnLimit: rate.NewLimiter(rate.Every(10*time.Second), 1),
		baseURL:   c.BaseURL().String(),
		tokens:    newCache(g.options, isAccepted, ownerOf, seats, newSeatPool(g.options.MaxUnverifiedReviews)),
		rights:    newCache(g.options, func(v decision) bool { return v.allowed }, func(v decision) string { return v.owner }, seats, seats),

		certificates:     newCache(g.options, isAccepted, ownerOf, newSeatPool(8), newSeatPool(8)), // sends nothing
		deniedNamespaces: newFairLRU[time.Time](g.options.MaxEntries),
	}
	var err error
	if r.authentication, err = clientFor(c, "/apis", schema.GroupVersion{Group: "authentication.k8s.io", Version: "v1"}); err != nil {
		return fail(err)
	}
	if r.authorization, err = clientFor(c, "/apis", schema.GroupVersion{Group: "authorization.k8s.io", Version: "v1"}); err != nil {
		return fail(err)
	}
	if r.authorities = g.authorities; r.authorities == nil {
		core, err := clientFor(c, "/api", schema.GroupVersion{Version: "v1"})
		if err != nil {
			return fail(err)
		}
		r.authorities = clusterAuthorities(core, g.options)
	}
	// How the cluster is reached, without the mirror's credentials.
	config := c.Config()
	anonymous := rest.AnonymousClientConfig(config)
	anonymous.Transport = config.Transport
	if r.anonymous, err = rest.HTTPClientFor(anonymous); err != nil {
		return fail(err)
	}
	return r, nil
}

func isAccepted(c *Caller) bool { return c != nil }

func ownerOf(c *Caller) string {
	if c == nil {
		return ""
	}
	return c.owner
}

func clientFor(c *cluster.Cluster, path string, gv schema.GroupVersion) (rest.Interface, error) {
	config := c.Config()
	config.APIPath, config.GroupVersion = path, &gv
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.RESTClientForConfigAndClient(config, c.HTTPClient())
}

// create sends a review and reads the response. It does not retry: a caller waits for
// the answer.
func create(ctx context.Context, client rest.Interface, resource string, review, result runtime.Object) error {
	return client.Post().Resource(resource).Body(review).MaxRetries(0).Do(ctx).Into(result)
}

// warnUnavailable logs that a review failed, at a limited rate.
func (r *Reviewer) warnUnavailable(what string, err error) {
	if r.warnLimit.Allow() {
		r.log.Warn("cannot review callers of a cluster; those without a grace are refused", "cluster", r.name, "review", what, "err", err)
	}
}
