package fleet

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/rest"
)

// FollowerOptions configure a [Follower].
type FollowerOptions struct {
	// Direct, if not nil, has the API servers that this process reaches itself, by the names of the
	// clusters: they are asked about callers and their rights. Others are asked by their
	// publishers.
	Direct iter.Seq2[map[string]*rest.Config, error]
	// Logger is nil for slog.Default().
	Logger *slog.Logger
}

// Follower finds the clusters that are published. Its methods are safe for concurrent use.
type Follower struct {
	opts FollowerOptions
	nc   *nats.Conn
	js   jetstream.JetStream
	log  *slog.Logger

	statuses chan nats.Status
	watched  chan struct{} // closed when the connection is not watched any more

	mu       sync.Mutex
	replicas map[string]*replica
	servers  map[string]*apiServer // that are asked directly
	up, down chan struct{}         // closed while NATS is connected, and while it is not
}

// NewFollower returns a follower that uses a connection. The caller must call [Follower.Close].
func NewFollower(nc *nats.Conn, opts FollowerOptions) (*Follower, error) {
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		return nil, err
	}
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	f := &Follower{
		opts: opts, nc: nc, js: js, log: opts.Logger, replicas: map[string]*replica{}, servers: map[string]*apiServer{},
		statuses: nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED), watched: make(chan struct{}),
		up: make(chan struct{}), down: make(chan struct{}),
	}
	close(f.down)
	f.setConnected()
	go func() {
		defer close(f.watched)
		for range f.statuses {
			f.setConnected()
		}
	}()
	return f, nil
}

// setConnected notes whether NATS is connected.
func (f *Follower) setConnected() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.connected()
	select {
	case <-f.up:
		if !now {
			f.up = make(chan struct{})
			close(f.down)
		}
	default:
		if now {
			f.down = make(chan struct{})
			close(f.up)
		}
	}
}

// link returns what is closed while NATS is connected, and what is while it is not.
func (f *Follower) link() (up, down <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.up, f.down
}

// Clusters yields the set of published clusters, and again whenever it changes, until ctx ends.
// The configuration of a cluster stays the same pointer for as long as it is published; its
// requests are answered from the streams. A cluster is removed when its log has been deleted for half a
// minute, not when nothing is heard of it.
func (f *Follower) Clusters(ctx context.Context) iter.Seq2[map[string]*rest.Config, error] {
	return func(yield func(map[string]*rest.Config, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if f.opts.Direct != nil {
			followed := make(chan struct{})
			go func() {
				defer close(followed)
				f.followServers(ctx)
			}()
			defer func() {
				cancel()
				<-followed
			}()
		}
		known, missing := map[string]*rest.Config{}, map[string]int{}
		if !yield(maps.Clone(known), nil) {
			return
		}
		for {
			found, err := f.find(ctx)
			changed := false
			for name := range found {
				if delete(missing, name); known[name] == nil {
					known[name], changed = f.config(name), true
				}
			}
			for name := range known {
				if err == nil && !found[name] {
					missing[name]++
				}
				if missing[name] >= missingLooks {
					delete(known, name)
					delete(missing, name)
					f.forget(name)
					changed = true
				}
			}
			if ctx.Err() != nil || changed && !yield(maps.Clone(known), nil) {
				return
			}
			if err != nil && !yield(nil, fmt.Errorf("find the published clusters: %w", err)) {
				return
			}
			pause := lookAgain
			if len(known) == 0 {
				pause = time.Second
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
		}
	}
}

const (
	// lookAgain is the time between two looks for published clusters.
	lookAgain = 5 * time.Second
	// missingLooks is the number of looks after which a cluster without a log is removed. A
	// publisher makes a log again that was lost.
	missingLooks = 6
)

// find returns the names of the published clusters.
func (f *Follower) find(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	list := f.js.StreamNames(ctx, jetstream.WithStreamListSubject(logSubject+">"))
	for name := range list.Name() {
		escaped, ok := strings.CutPrefix(name, logStream)
		if !ok {
			continue
		}
		if cluster, ok := fromToken(escaped); ok {
			found[cluster] = true
		}
	}
	return found, list.Err()
}

// config returns the configuration of a cluster whose API server is its streams.
func (f *Follower) config(name string) *rest.Config {
	ctx, cancel := context.WithCancel(context.Background())
	r := newReplica(ctx, f, name)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.log.run()
	}()
	r.stop = func() {
		cancel()
		<-ended
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replicas[name] = r
	return &rest.Config{Host: "http://" + token(name) + ".published", Transport: r}
}

// forget ends the reading of a cluster that is no longer published.
func (f *Follower) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.replicas[name]; r != nil {
		r.stop()
		delete(f.replicas, name)
	}
}

// Close ends the reading of all clusters. The mirror that uses them should be closed before.
func (f *Follower) Close() {
	f.nc.RemoveStatusListener(f.statuses)
	<-f.watched
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, r := range f.replicas {
		r.stop()
		delete(f.replicas, name)
	}
	for _, s := range f.servers {
		s.close()
	}
}

// connected reports whether NATS can be asked.
func (f *Follower) connected() bool { return f.nc.Status() == nats.CONNECTED }
