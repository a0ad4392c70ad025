package mirror

import (
	"context"

	"github.com/tidings-io/tidings/cluster"
)

// Cluster returns the connection to a cluster of the mirror; "" means the
// default one. A cluster that is replaced has another one from then on.
func (m *Mirror) Cluster(name string) (*cluster.Cluster, error) {
	member, err := m.member(name)
	if err != nil {
		return nil, err
	}
	return member.cluster, nil
}

// Uses says whether a connection is that of one of the mirror's clusters now.
func (m *Mirror) Uses(c *cluster.Cluster) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	member := m.members[c.Name()]
	return member != nil && member.cluster == c
}

type upstreamKey struct{}

// WithCluster returns a context under which [Mirror.Resolve] and
// [Mirror.ResolveGVR] find resources of this very connection only. What a
// cluster has been asked about callers is of no use for another one that has
// taken its name meanwhile: they then fail with an [*Error] of reason [Ended].
func WithCluster(ctx context.Context, c *cluster.Cluster) context.Context {
	return context.WithValue(ctx, upstreamKey{}, c)
}

// expected says that a member is the one that ctx allows.
func expected(ctx context.Context, m *member) error {
	if c, ok := ctx.Value(upstreamKey{}).(*cluster.Cluster); ok && c != m.cluster {
		return errReplaced
	}
	return nil
}
