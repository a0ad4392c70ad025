package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/codec"
)

// Object is what a mirror keeps and hands out: the JSON of one object as the
// API server sent it, and what is asked of it most. It is shared and must not
// be modified.
type Object = codec.Raw

// Everything, among [Options.Resources], stands for every resource that can be
// listed and watched, each mirrored from its first use on.
const Everything = "*"

// Options of a [Mirror]. The zero value mirrors everything on first use.
type Options struct {
	// Resources are mirrored from the start, in every cluster, named in any
	// form kubectl takes; nothing else is, unless [Everything] is among them.
	// Empty means [Everything]. Secrets are mirrored only if named.
	Resources []string
	// Default is the cluster meant by queries that name none. While there is
	// a single cluster it is that one.
	Default string
	// Retain is the number of changes of each resource kept for watches that
	// resume; they keep the objects they tell of in memory. 0 means 2,000.
	Retain int
	// Backlog is the number of events that may wait for a slow watch before they
	// are folded to the newest of each object. 0 means 5,000. What is retained
	// takes no more memory for waiting, so it is no less than Retain.
	Backlog int
	// Wait is how long a query waits for the first list of a resource. 0 means
	// 20 seconds.
	Wait time.Duration
	// Unread is after what time without a read or a watch a resource that was
	// mirrored from its first use on is given up, with its memory; the next read
	// has it mirrored anew. What is named in Resources is kept. 0 means never.
	// It is a minute at least, so that nobody under way is cut off.
	Unread time.Duration
	// Logger gets what goes on with clusters and informers. nil means
	// slog.Default().
	Logger *slog.Logger
}

// Mirror is many informers of many clusters. All methods may be called from
// any number of goroutines.
type Mirror struct {
	opts       Options
	names      []string // of Options.Resources, without Everything
	everything bool
	log        *slog.Logger

	foldBy atomic.Int64 // see FoldEarlier

	setting sync.Mutex        // one Set at a time
	leaving []<-chan struct{} // of members that are being emptied; under setting

	mu       sync.Mutex
	clusters map[string]*Cluster
	closed   bool
}

// New makes a mirror without clusters; see [Mirror.Set]. It starts nothing.
// [Mirror.Close] must be called in the end.
func New(opts Options) (*Mirror, error) {
	if opts.Retain <= 0 {
		opts.Retain = 2_000
	}
	if opts.Backlog <= 0 {
		opts.Backlog = 5_000
	}
	if opts.Wait <= 0 {
		opts.Wait = 20 * time.Second
	}
	if opts.Unread > 0 {
		opts.Unread = max(opts.Unread, time.Minute)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	m := &Mirror{
		opts: opts, log: opts.Logger, everything: len(opts.Resources) == 0,
		clusters: map[string]*Cluster{},
	}
	for _, name := range opts.Resources {
		switch name = strings.TrimSpace(name); {
		case name == "":
			return nil, fmt.Errorf("resources to mirror: an empty name is among them")
		case name == Everything:
			m.everything = true
		case !slices.Contains(m.names, name):
			m.names = append(m.names, name)
		}
	}
	return m, nil
}

// FoldEarlier has what waits for slow watches folded once it is a divisor-th of
// [Options.Backlog], but no less than [Options.Retain], to give memory back; 1 ends
// that. It counts for all watches, also those that are open: what waits for them is
// folded with the next event.
func (m *Mirror) FoldEarlier(divisor int) { m.foldBy.Store(int64(divisor)) }

// backlog is how many events may wait for a slow watch: at least those that are kept
// anyway.
func (m *Mirror) backlog() int {
	return max(m.opts.Backlog/max(1, int(m.foldBy.Load())), m.opts.Retain)
}

// Clusters lists the names of the clusters, sorted.
func (m *Mirror) Clusters() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.clusters))
}

// DefaultCluster is the cluster meant where none is named, "" if that is open.
func (m *Mirror) DefaultCluster() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.defaultCluster()
}

func (m *Mirror) defaultCluster() string {
	if _, ok := m.clusters[m.opts.Default]; ok {
		return m.opts.Default
	}
	if len(m.clusters) == 1 && m.opts.Default == "" {
		for name := range m.clusters {
			return name
		}
	}
	return ""
}

// Cluster finds a cluster by name; "" means the default one. A request looks its
// cluster up once, and everything about it is asked of what it was given.
func (m *Mirror) Cluster(name string) (*Cluster, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	asked := name
	if name == "" {
		name = m.defaultCluster()
	}
	if found := m.clusters[name]; found != nil && name != "" && !m.closed {
		return found, nil
	}
	exist := slices.Sorted(maps.Keys(m.clusters))
	switch {
	case m.closed:
		return nil, errClosed
	case len(exist) == 0:
		return nil, &Error{Reason: Unreachable, Message: "the mirror has no clusters at the moment", Retry: time.Second}
	case asked == "":
		why := "there are several clusters"
		if m.opts.Default != "" {
			why = fmt.Sprintf("the default cluster %q is not there", m.opts.Default)
		}
		return nil, &Error{Reason: ClusterNeeded, Exists: exist, Message: fmt.Sprintf("%s; say which is meant: %s", why, strings.Join(exist, ", "))}
	}
	return nil, &Error{Reason: UnknownCluster, Exists: exist, Message: fmt.Sprintf("there is no cluster %q; there are: %s", name, strings.Join(exist, ", "))}
}

// Uses says whether a connection is that of one of the mirror's clusters now.
func (m *Mirror) Uses(c *cluster.Cluster) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.clusters[c.Name()]
	return found != nil && found.cluster == c
}

// Close stops and empties every informer, ends every watch, and waits until
// nothing of the mirror runs any more. The error is ctx's, if that takes too
// long; it then goes on by itself. A closed mirror answers nothing.
func (m *Mirror) Close(ctx context.Context) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	gone := slices.Collect(maps.Values(m.clusters))
	clear(m.clusters)
	m.closed = true
	m.mu.Unlock()
	for _, old := range gone {
		m.leave(old, errClosed)
	}
	return m.left(ctx)
}
