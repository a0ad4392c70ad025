package mirror

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/informerapi"
)

// Status is the state of a mirror.
type Status struct {
	// Ready says that there are clusters, and that every resource of
	// [Options.Resources] is synced in each of them.
	Ready    bool
	Clusters []ClusterStatus // sorted by name
}

// ClusterStatus is the state of one cluster.
type ClusterStatus struct {
	Name       string
	Default    bool
	Connection Connection
	Resources  []ResourceStatus // sorted by name
}

// Up reports whether the API server answers, as far as the informers can tell. It is
// not known until one of them has watched or failed.
func (c ClusterStatus) Up() (up, known bool) {
	for _, r := range c.Resources {
		switch r.Phase {
		case informer.Watching, informer.Denied, informer.Gone: // the last two are its answers
			return true, true
		case informer.Refused: // an answer that may be old
			continue
		}
		known = known || r.Err != nil || r.Phase == informer.Waiting || r.LastErrorTime.After(r.LastContact)
	}
	return false, known
}

// ResourceStatus is the state of one resource of one cluster.
type ResourceStatus struct {
	// Name is the full name of the resource with its version, or the name in
	// [Options.Resources] as long as it has not been found in the cluster. If only
	// one namespace is mirrored, that follows after a slash.
	Name string
	// Required says that the resource is named in [Options.Resources].
	Required bool
	// Err says why the resource is not mirrored. It is nil if it is mirrored or about
	// to be.
	Err error
	// Status is that of the informer, the zero value if there is none.
	informer.Status

	informer *Informer
}

// Progress returns how far those are who read the resource's changes. It takes time for
// each of them.
func (r ResourceStatus) Progress() (p informerapi.Progress) {
	if r.informer != nil {
		p = r.informer.internals.Progress()
	}
	return p
}

// Status returns the state of the mirror. It may be called at any time.
func (m *Mirror) Status() Status {
	m.mu.Lock()
	s := Status{Ready: len(m.clusters) > 0}
	fallback := m.defaultCluster()
	all := slices.SortedFunc(maps.Values(m.clusters), func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) })
	m.mu.Unlock()
	for _, one := range all {
		c := ClusterStatus{Name: one.name, Default: one.name == fallback, Connection: one.connection.status(), Resources: one.status()}
		for _, r := range c.Resources {
			if r.Required && !r.Synced {
				s.Ready = false
			}
		}
		s.Clusters = append(s.Clusters, c)
	}
	return s
}

func (c *Cluster) status() []ResourceStatus {
	c.mu.Lock()
	informers := maps.Clone(c.informers)
	c.mu.Unlock()
	var out []ResourceStatus
	index := map[string]int{}
	for _, k := range informers {
		r := ResourceStatus{Name: k.resource.Versioned(), Status: k.status(), informer: k}
		r.Cluster, r.Resource, r.Namespace = c.name, k.resource.GVR(), k.namespace
		if k.namespace != "" {
			r.Name += "/" + k.namespace
		}
		select {
		case <-k.done:
			r.Err = k.err
		default:
		}
		index[r.Name] = len(out)
		out = append(out, r)
	}
	for _, n := range c.named {
		found, err := n.state()
		name := n.name
		if found != nil {
			name = found.Versioned()
		}
		i, ok := index[name]
		if !ok {
			i, index[name] = len(out), len(out)
			out = append(out, ResourceStatus{Name: name, Status: informer.Status{Cluster: c.name, Phase: informer.Stopped, Expected: -1}})
		}
		out[i].Required = true
		if err != nil && !out[i].Synced {
			out[i].Err = err
		}
	}
	slices.SortFunc(out, func(a, b ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}
