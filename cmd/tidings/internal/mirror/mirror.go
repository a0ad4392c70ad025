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

// Object is an object of a mirror: its JSON as the API server sent it, and accessors
// for the most used metadata. It is shared and must not be modified.
type Object = codec.Raw

// Everything in [Options.Resources] stands for every resource that can be listed and
// watched. Each is mirrored from its first use on.
const Everything = "*"

// Options configure a [Mirror]. The zero value mirrors each resource from its first
// use on.
type Options struct {
	// Resources are mirrored from the start in every cluster. They are named in any
	// form kubectl accepts. Other resources are mirrored only if [Everything] is in
	// the list. An empty list means [Everything]. Secrets are mirrored only if the
	// list names them.
	Resources []string
	// Default is the cluster of queries that name none. If it is empty and there is
	// a single cluster, that one is the default.
	Default string
	// Retain is the number of events of each resource that are kept for watches that
	// resume. They keep their objects in memory. 0 means 2,000.
	Retain int
	// Backlog is the number of events that may wait for a slow watch before they
	// are folded to the newest of each object. 0 means 5,000. Retained events take
	// no additional memory while they wait, so the backlog is at least Retain.
	Backlog int
	// Wait is how long a query waits for the first list of a resource. 0 means
	// 20 seconds.
	Wait time.Duration
	// IdleTimeout is the time after which a resource that is neither read nor
	// watched is no longer mirrored. Its memory is freed, and the next read mirrors
	// it again. Resources named in Resources are kept. 0 means never; any other value
	// is at least a minute, so that no request in progress is cut off.
	IdleTimeout time.Duration
	// Journal, if not nil, records what the informers deliver. After a restart, they
	// start from it instead of a list.
	Journal Journal
	// Publisher, if not nil, is told of the informers, too.
	Publisher Recorder
	// Logger logs the events of clusters and informers. nil means slog.Default().
	Logger *slog.Logger
}

// Recorder is told of informers.
type Recorder interface {
	// Record is called for each informer before it starts, so that it can subscribe. The
	// result, unless nil, is called in a goroutine of its own, and returns soon after
	// the informer's context ends.
	Record(*Informer) (run func())
}

// Journal keeps the objects of informers beyond the end of the process.
type Journal interface {
	Recorder
	// Restore is called when an informer starts; see [informer.Restorer].
	Restore(ctx context.Context, inf *Informer, each func(json []byte) error) (resourceVersion string, err error)
}

// Mirror has the informers of many clusters. Its methods are safe for concurrent use.
type Mirror struct {
	opts       Options
	names      []string // of Options.Resources, without Everything
	everything bool
	log        *slog.Logger

	foldBy atomic.Int64 // see FoldEarlier

	setting  sync.Mutex        // one Set at a time
	retiring []<-chan struct{} // closed when a removed cluster is empty; under setting

	mu       sync.Mutex
	clusters map[string]*Cluster
	closed   bool
}

// New returns a mirror without clusters; see [Mirror.Set]. It starts no goroutines.
// The caller must call [Mirror.Close] in the end.
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
	if opts.IdleTimeout > 0 {
		opts.IdleTimeout = max(opts.IdleTimeout, time.Minute)
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
			return nil, fmt.Errorf("resources to mirror: a name is empty")
		case name == Everything:
			m.everything = true
		case !slices.Contains(m.names, name):
			m.names = append(m.names, name)
		}
	}
	resources := slog.Any("resources", m.names)
	switch {
	case len(m.names) == 0:
		resources = slog.String("resources", "on demand")
	case m.everything:
		resources = slog.Any("resources", append(slices.Clone(m.names), "others on demand"))
	}
	m.log.Info("mirroring", resources, "dropUnreadAfter", opts.IdleTimeout, "retain", opts.Retain, "backlog", m.backlog())
	return m, nil
}

// FoldEarlier divides the backlog of slow watches, [Options.Backlog], by divisor to
// free memory, but not below [Options.Retain]. A divisor of 1 restores it. FoldEarlier
// applies to open watches too: their waiting events are folded with the next event.
func (m *Mirror) FoldEarlier(divisor int) { m.foldBy.Store(int64(divisor)) }

// backlog is the number of events that may wait for a slow watch. It is at least the
// number of retained events.
func (m *Mirror) backlog() int {
	return max(m.opts.Backlog/max(1, int(m.foldBy.Load())), m.opts.Retain)
}

// Clusters lists the names of the clusters, sorted.
func (m *Mirror) Clusters() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.clusters))
}

// DefaultCluster is the cluster of queries that name none, "" if there is no default.
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

// Cluster finds a cluster by name; "" means the default cluster. A request must look
// its cluster up once and use the result throughout, see [Cluster].
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

// Uses reports whether c is the connection of one of the mirror's present clusters.
func (m *Mirror) Uses(c *cluster.Cluster) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := m.clusters[c.Name()]
	return found != nil && found.cluster == c
}

// Close stops and empties every informer, ends every watch, and waits until all
// goroutines of the mirror have returned. If ctx ends first, Close returns its error
// and the rest continues in the background. A closed mirror answers with errors only.
func (m *Mirror) Close(ctx context.Context) error {
	m.setting.Lock()
	defer m.setting.Unlock()
	m.mu.Lock()
	gone := slices.Collect(maps.Values(m.clusters))
	clear(m.clusters)
	m.closed = true
	m.mu.Unlock()
	for _, old := range gone {
		m.retire(old, errClosed)
	}
	return m.waitRetired(ctx)
}
