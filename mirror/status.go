package mirror

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tidings-io/tidings/informer"
)

// Status is what there is to know about a mirror at one moment.
type Status struct {
	// Ready says that there are clusters, and that every resource asked for by
	// name is mirrored in each of them.
	Ready    bool
	Clusters []ClusterStatus // sorted by name
}

// ClusterStatus is the state of one cluster.
type ClusterStatus struct {
	Name      string
	Default   bool
	Resources []ResourceStatus // sorted by name
}

// ResourceStatus is the state of one resource of one cluster.
type ResourceStatus struct {
	// Name is the resource's full name with its version, or what was asked for
	// if the cluster does not know that, or is not known yet to do so. Where
	// only one namespace is mirrored, that follows behind a slash.
	Name string
	// Required says that the resource was asked for by name.
	Required bool
	// Err is why the resource is not mirrored, nil while it is or is about to.
	Err error
	// Status is the informer's; zero if there is none.
	informer.Status
}

// Status may be called at any time.
func (m *Mirror) Status() Status {
	m.mu.Lock()
	s := Status{Ready: len(m.clusters) > 0}
	fallback := m.defaultCluster()
	all := slices.SortedFunc(maps.Values(m.clusters), func(a, b *Cluster) int { return cmp.Compare(a.name, b.name) })
	m.mu.Unlock()
	for _, one := range all {
		c := ClusterStatus{Name: one.name, Default: one.name == fallback, Resources: one.status()}
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
	place := map[string]int{}
	for _, k := range informers {
		r := ResourceStatus{Name: k.resource.Versioned(), Status: k.status()}
		r.Cluster, r.Resource, r.Namespace = c.name, k.resource.GVR(), k.namespace
		if k.namespace != "" {
			r.Name += "/" + k.namespace
		}
		select {
		case <-k.done:
			r.Err = k.err
		default:
		}
		place[r.Name] = len(out)
		out = append(out, r)
	}
	for _, n := range c.named {
		found, err := n.state()
		name := n.name
		if found != nil {
			name = found.Versioned()
		}
		i, ok := place[name]
		if !ok {
			i, place[name] = len(out), len(out)
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
