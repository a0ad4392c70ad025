package fleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
)

// PublisherOptions configure a [Publisher].
type PublisherOptions struct {
	// Name identifies the publisher in the log of a cluster and in its own. It must differ from that of any other.
	// Empty means the name of the host and a random suffix.
	Name string
	// As is the name that the mirror's only cluster is published under. Empty means that each
	// cluster is published under its own name.
	As string
	// StreamOptions are for streams that do not exist yet.
	StreamOptions
	// Fresh makes an informer as fresh as its cluster, and returns the resourceVersion that
	// it has then reached.
	Fresh func(ctx context.Context, inf *mirror.Informer) (resourceVersion uint64, err error)
	// Logger is nil for slog.Default().
	Logger *slog.Logger
}

// Publisher publishes the clusters of a mirror. Its methods are safe for concurrent use.
type Publisher struct {
	opts PublisherOptions
	nc   *nats.Conn
	js   jetstream.JetStream
	log  *slog.Logger
	// making bounds the snapshots that are made at once. Clusters that begin, or change, alike come to need one at the same time, and
	// their changes must not wait for all of these.
	making chan struct{}

	mu       sync.Mutex
	clusters map[*mirror.Cluster]*published
}

// NewPublisher returns a publisher that uses a connection. It begins to publish a cluster with
// the first informer that it is told of by [Publisher.Record].
func NewPublisher(nc *nats.Conn, opts PublisherOptions) (*Publisher, error) {
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	if opts.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("name the publisher: %w", err)
		}
		opts.Name = host + "-" + rand.Text()[:6]
	}
	// Each streamWriter limits what waits for its stream. A limit for all of them would let one cluster hold up others.
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(math.MaxInt32), jetstream.WithPublishAsyncTimeout(5*time.Second), jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		return nil, err
	}
	return &Publisher{opts: opts, nc: nc, js: js, log: opts.Logger, making: make(chan struct{}, (runtime.GOMAXPROCS(0)+1)/2), clusters: map[*mirror.Cluster]*published{}}, nil
}

// Record implements [mirror.Recorder]: it publishes what an informer has, for as long as it
// runs.
func (p *Publisher) Record(inf *mirror.Informer) (run func()) {
	return func() {
		c := p.cluster(inf.Cluster())
		c.add(inf)
		<-inf.Context().Done()
		c.remove(inf)
	}
}

// cluster returns what publishes a cluster, and starts it if need be. It ends with the cluster.
func (p *Publisher) cluster(of *mirror.Cluster) *published {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clusters[of]
	if c == nil {
		c = &published{
			Publisher: p, cluster: of, name: cmp.Or(p.opts.As, of.Name()), log: p.log.With("cluster", of.Name()),
			informers: map[feedName]*mirror.Informer{}, changed: make(chan struct{}, 1), ended: make(chan struct{}),
		}
		p.clusters[of] = c
		go func() {
			defer close(c.ended)
			c.run(of.Context())
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.clusters, of)
		}()
	}
	return c
}

// Wait waits until nothing is published any more, because the clusters have ended.
func (p *Publisher) Wait(ctx context.Context) error {
	p.mu.Lock()
	var all []*published
	for _, c := range p.clusters {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		select {
		case <-c.ended:
		case <-ctx.Done():
			return fmt.Errorf("end publishing cluster %s: %w", c.name, context.Cause(ctx))
		}
	}
	return nil
}

// published publishes one cluster.
type published struct {
	*Publisher
	cluster *mirror.Cluster
	name    string
	log     *slog.Logger
	changed chan struct{} // informers were added or removed; has room for one
	ended   chan struct{}

	mu        sync.Mutex
	informers map[feedName]*mirror.Informer
	state     PublishState
}

func nameOf(inf *mirror.Informer) feedName {
	return feedName{inf.Resource().GVR(), inf.Namespace()}
}

func (c *published) add(inf *mirror.Informer) {
	c.mu.Lock()
	c.informers[nameOf(inf)] = inf
	c.mu.Unlock()
	c.notify()
}

func (c *published) remove(inf *mirror.Informer) {
	c.mu.Lock()
	if name := nameOf(inf); c.informers[name] == inf { // not yet replaced by another
		delete(c.informers, name)
	}
	c.mu.Unlock()
	c.notify()
}

func (c *published) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// run publishes whenever nobody else does, until ctx ends.
func (c *published) run(ctx context.Context) {
	for pause := time.Second; ctx.Err() == nil; {
		begun := time.Now()
		err := c.publish(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > 10*time.Second {
			pause = time.Second
		}
		c.set(func(s *PublishState) { s.Holds, s.Err, s.Since = false, err, time.Now() })
		c.log.Warn("not publishing; trying again", "err", err, "retry", pause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// publish waits until nobody else does, and publishes until ctx ends or another publisher takes
// over or the streams are lost.
func (c *published) publish(ctx context.Context) error {
	log, pieces, err := openStreams(ctx, c.js, c.name, c.opts.StreamOptions)
	if err != nil {
		return err
	}
	if err := c.waitTurn(ctx, log, func(holder string) {
		c.set(func(s *PublishState) { s.Standby, s.Err = holder, nil })
	}); err != nil {
		return err
	}
	return c.term(ctx, log, pieces)
}

// PublishState is the state of publishing one cluster.
type PublishState struct {
	Cluster string // in the mirror
	As      string // the name that it is published under
	// Holds says that this publisher publishes the cluster, and Standby names another one that
	// does.
	Holds   bool
	Standby string
	// Err says why the cluster is not published by this publisher.
	Err   error
	Since time.Time // of Holds or Err
	Epoch string
	// Unpublished has the resources that cannot be published, and why.
	Unpublished map[string]string
	// Messages, Bytes and Changes were published since the start, Snapshots were made.
	Messages, Bytes, Changes, Snapshots uint64
}

func (c *published) set(change func(*PublishState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.state)
}

// refuse notes why a resource cannot be published; nil: it may be tried again.
func (c *published) refuse(name feedName, why error) {
	if why != nil {
		c.log.Warn("a resource is not published", "resource", name.String(), "err", why)
	}
	c.set(func(s *PublishState) {
		unpublished := maps.Clone(s.Unpublished) // others may read it
		delete(unpublished, name.String())
		if why != nil {
			if unpublished == nil {
				unpublished = map[string]string{}
			}
			unpublished[name.String()] = why.Error()
		}
		s.Unpublished = unpublished
	})
}

// refusal returns why a resource cannot be published, "" if nothing is known.
func (c *published) refusal(name feedName) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Unpublished[name.String()]
}

// States returns the state of each cluster, in no order.
func (p *Publisher) States() (states []PublishState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.clusters {
		c.mu.Lock()
		c.state.Cluster, c.state.As = c.cluster.Name(), c.name
		states = append(states, c.state)
		c.mu.Unlock()
	}
	return states
}
