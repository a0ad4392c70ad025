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

// Gate has the reviewers of a mirror's clusters.
type Gate struct {
	options     Options
	authorities *authorities // of Options.ClientCAFile, nil without

	mu        sync.Mutex
	reviewers map[*cluster.Cluster]*Reviewer
}

// NewGate makes a gate. It reads [Options.ClientCAFile] and asks nothing yet.
func NewGate(options Options) (*Gate, error) {
	g := &Gate{options: options.withDefaults(), reviewers: map[*cluster.Cluster]*Reviewer{}}
	if options.ClientCAFile != "" {
		g.authorities = authoritiesOfFile(options.ClientCAFile)
		if _, err := g.authorities.get(context.Background()); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Reviewer returns the reviewer of a cluster, the same for as long as the
// cluster is. When it has to make one, the reviewers of clusters that are not in
// use any more are dropped with all they remember.
func (g *Gate) Reviewer(c *cluster.Cluster, used func(*cluster.Cluster) bool) (*Reviewer, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r := g.reviewers[c]; r != nil {
		return r, nil
	}
	for old, r := range g.reviewers {
		if !used(old) {
			delete(g.reviewers, old)
			r.callers.CloseIdleConnections()
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
		r.callers.CloseIdleConnections()
	}
}

// Reviewer asks one cluster about callers and their rights.
type Reviewer struct {
	name    string
	options Options
	log     *slog.Logger
	warn    *rate.Limiter // a cluster that does not answer would fill the log

	authentication rest.Interface // with the mirror's own credentials
	authorization  rest.Interface
	callers        *http.Client // with none: the callers' are put in
	base           string

	authorities *authorities
	// Of the token or certificate; nil if it is not accepted.
	tokens, certificates *cache[*Caller]
	rights               *cache[verdict]
	hidden               *shares[time.Time] // until when, see Among
	lost                 atomic.Uint64
}

func newReviewer(g *Gate, c *cluster.Cluster) (*Reviewer, error) {
	fail := func(err error) (*Reviewer, error) {
		return nil, fmt.Errorf("cluster %q: prepare to ask about callers: %w", c.Name(), err)
	}
	places := newPlaces(g.options.MaxQuestions)
	r := &Reviewer{
		name: c.Name(), options: g.options, log: g.options.Logger,
		warn:   rate.NewLimiter(rate.Every(10*time.Second), 1),
		base:   c.BaseURL().String(),
		tokens: newCache(g.options, isSomebody, payerOf, places, newPlaces(g.options.MaxStrangers)),
		rights: newCache(g.options, func(v verdict) bool { return v.allowed }, func(v verdict) string { return v.of }, places, places),

		certificates: newCache(g.options, isSomebody, payerOf, newPlaces(8), newPlaces(8)), // asks nobody
		hidden:       newShares[time.Time](g.options.MaxEntries),
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
		r.authorities = authoritiesOfCluster(core, g.options)
	}
	// Everything of how the cluster is reached, and nothing of who the mirror is.
	own := c.Config()
	anonymous := rest.AnonymousClientConfig(own)
	anonymous.Transport = own.Transport
	if r.callers, err = rest.HTTPClientFor(anonymous); err != nil {
		return fail(err)
	}
	return r, nil
}

func isSomebody(c *Caller) bool { return c != nil }

func payerOf(c *Caller) string {
	if c == nil {
		return ""
	}
	return c.payer
}

func clientFor(c *cluster.Cluster, path string, gv schema.GroupVersion) (rest.Interface, error) {
	config := c.Config()
	config.APIPath, config.GroupVersion = path, &gv
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.RESTClientForConfigAndClient(config, c.HTTPClient())
}

// create sends a review and reads what became of it. It is tried once: who
// waits for it is to know.
func create(ctx context.Context, client rest.Interface, resource string, review, result runtime.Object) error {
	return client.Post().Resource(resource).Body(review).MaxRetries(0).Do(ctx).Into(result)
}

// trouble logs that the cluster does not answer, now and then.
func (r *Reviewer) trouble(asking string, err error) {
	if r.warn.Allow() {
		r.log.Warn("cannot ask a cluster about its callers, who are refused meanwhile", "cluster", r.name, "asking", asking, "err", err)
	}
}
