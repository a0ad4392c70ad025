package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/mirror"
)

// resourceState is what /readyz and /clusters say of a resource.
type resourceState struct {
	Synced   bool           `json:"synced"`
	Required bool           `json:"required,omitempty"` // asked for by name: readiness waits for it
	Phase    informer.Phase `json:"phase"`
	Objects  int            `json:"objects"`
	*progress
	Error string `json:"error,omitempty"`
}

// clusterState is what /readyz and /clusters say of a cluster.
type clusterState struct {
	Name      string                   `json:"name"`
	Path      string                   `json:"path"` // beneath which it is to be found here
	Default   bool                     `json:"default,omitempty"`
	Health    string                   `json:"health"`
	Error     string                   `json:"error,omitempty"`
	Resources map[string]resourceState `json:"resources,omitempty"`
	// Available are the resources that can be asked for.
	Available []string `json:"available,omitempty"`
}

// The healths of a cluster.
const (
	healthy = "ok"      // everything begun is mirrored
	syncing = "syncing" // first lists are under way
	failing = "failing" // something begun is not mirrored, or not followed at the moment
	unused  = "unused"  // nothing has been asked for yet
)

// stateOf says how a cluster is doing; details, what is mirrored of it and what
// went wrong, are for those who may see how the mirror is doing.
func stateOf(c mirror.ClusterStatus, details bool) clusterState {
	out := clusterState{Name: c.Name, Path: ClusterPath(c.Name), Default: c.Default, Health: unused, Resources: map[string]resourceState{}}
	worse := func(health string) {
		order := []string{unused, healthy, syncing, failing}
		if slices.Index(order, health) > slices.Index(order, out.Health) {
			out.Health = health
		}
	}
	for _, r := range c.Resources {
		state := resourceState{Synced: r.Synced, Required: r.Required, Phase: r.Phase, Objects: r.Objects}
		trouble := r.Err
		switch r.Phase {
		case informer.Waiting, informer.Denied, informer.Gone:
			if trouble == nil {
				trouble = r.LastError
			}
		}
		if !r.Synced {
			state.progress = progressOf(&r.Status)
			state.progress.LastError = ""
		}
		switch {
		case trouble != nil:
			state.Error = trouble.Error()
			worse(failing)
		case r.Synced:
			worse(healthy)
		default:
			worse(syncing)
		}
		if details {
			out.Resources[r.Name] = state
		}
	}
	return out
}

func (s *Server) serveClusters(w http.ResponseWriter, r *http.Request) {
	list := []clusterState{}
	details := s.mayMonitor(r)
	for _, c := range s.mirror.Status().Clusters {
		list = append(list, stateOf(c, details))
	}
	writeJSON(w, http.StatusOK, map[string]any{"data": list})
}

func (s *Server) serveCluster(w http.ResponseWriter, r *http.Request) {
	c := routeOf(r).cluster
	status := s.mirror.Status()
	i := slices.IndexFunc(status.Clusters, func(s mirror.ClusterStatus) bool { return s.Name == c.Name() })
	resources, err := c.Resources(r.Context())
	if i < 0 {
		if err == nil {
			err = bad(s.mirror.Clusters(), "there is no cluster %q", c.Name())
		}
		failWith(w, err)
		return
	}
	details := s.mayMonitor(r)
	out := stateOf(status.Clusters[i], details)
	if s.may(r, discovering) {
		for _, res := range resources {
			out.Available = append(out.Available, res.Versioned())
		}
	}
	if err != nil {
		if out.Health = failing; details {
			out.Error = err.Error()
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"data": out})
}

// examples explain the routes to a person.
var examples = [][2]string{
	{"/deploy?labels[k8s-app]=kube-dns", "any resource by any name kubectl takes, selected by labels"},
	{"/pods?namespace=default&limit=50", "a page; the answer's continue is the next page's parameter"},
	{"/core/v1/pods/kube-system", "by group (core for the legacy one), version and resource, in a namespace"},
	{"/apps/v1/deployments/kube-system/coredns", "one object"},
	{"/pods?fieldSelector=spec.nodeName=worker-1", "labelSelector and fieldSelector as kubectl takes them"},
	{"/pods?watch=true", "server-sent events, resumed by Last-Event-ID or since="},
	{"/pods?visible=true", "of the namespaces that you may read, if you may not read all"},
	{"/pods?source=live", "straight from the API server, not from the cache"},
	{"/clusters", "the clusters and their health; each of the above also beneath /clusters/{cluster}"},
	{"/readyz", "what is mirrored, and whether it is complete"},
	{"/metrics", "for Prometheus"},
}

func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	var clusters []string
	var fallback string
	if s.known(r) {
		clusters, fallback = s.mirror.Clusters(), s.mirror.DefaultCluster()
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		writeJSON(w, http.StatusOK, map[string]any{
			"name": "tidings", "version": s.opts.Version, "routes": Routes, "parameters": append(slices.Clone(listParams), "since"),
			"clusters": clusters, "default": fallback, "time": time.Now().UTC().Truncate(time.Second),
		})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tidings %s: a live mirror of Kubernetes resources.\n\n", s.opts.Version)
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-48s %s\n", e[0], e[1])
	}
	switch {
	case !s.known(r):
		b.WriteString("\nSay who you are, with a bearer token or a client certificate that the cluster accepts.\n")
	case fallback != "":
		fmt.Fprintf(&b, "\nClusters: %s (%s where none is named)\n", strings.Join(clusters, ", "), fallback)
	default:
		fmt.Fprintf(&b, "\nClusters: %s\n", strings.Join(clusters, ", "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(b.String()))
}
