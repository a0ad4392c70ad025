package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/page"
	"github.com/tidings-io/tidings/informer"
)

// resourceState is the state of a resource in /clusters.
type resourceState struct {
	Synced   bool           `json:"synced"`
	Required bool           `json:"required,omitempty"` // requested by name: readiness waits for it
	Phase    informer.Phase `json:"phase"`
	Objects  int            `json:"objects"`
	*progress
	Error string `json:"error,omitempty"`
	*pipeline
}

// clusterState is the state of a cluster in /clusters.
type clusterState struct {
	Name      string                   `json:"name"`
	Path      string                   `json:"path"` // where this server serves it
	Default   bool                     `json:"default,omitempty"`
	Health    string                   `json:"health"`
	Error     string                   `json:"error,omitempty"`
	Resources map[string]resourceState `json:"resources,omitempty"`
	// Publishing and Following are there if the cluster is published for other mirrors, or
	// comes from one.
	Publishing *publishing `json:"publishing,omitempty"`
	Following  *following  `json:"following,omitempty"`
	// Available are the resources that can be read.
	Available []string `json:"available,omitempty"`
}

// The values of clusterState.Health.
const (
	unused   = "unused"   // connected; no resource has been requested yet
	healthy  = "ok"       // connected; all started resources are synced and watched
	syncing  = "syncing"  // initial lists are in progress
	degraded = "degraded" // a resource that was not requested by name is not synced, or not watched now
	failing  = "failing"  // not connected, or a resource that was requested by name is not watched: not ready
)

// clusterState returns the state of a cluster. The details, which resources are
// mirrored and what went wrong, need the right to monitor.
func (s *Server) clusterState(c mirror.ClusterStatus, details bool) clusterState {
	out := clusterState{Name: c.Name, Path: ClusterPath(c.Name), Default: c.Default, Health: unused, Resources: map[string]resourceState{}}
	atLeast := func(health string) {
		order := []string{unused, healthy, syncing, degraded, failing}
		if slices.Index(order, health) > slices.Index(order, out.Health) {
			out.Health = health
		}
	}
	if problem := c.Connection.Problem(); problem != "" {
		if atLeast(failing); details {
			out.Error = problem
		}
	}
	if details {
		out.Publishing, out.Following = s.publishingOf(c.Name), s.followingOf(c.Name)
	}
	for _, r := range c.Resources {
		state := resourceState{Synced: r.Synced, Required: r.Required, Phase: r.Phase, Objects: r.Objects}
		failure := failureOf(r)
		if !r.Synced {
			state.progress = progressOf(&r.Status)
			state.progress.LastError = ""
		}
		switch {
		case failure != nil:
			state.Error = failure.Error()
			atLeast(map[bool]string{true: failing, false: degraded}[r.Required])
		case r.Synced:
			atLeast(healthy)
		default:
			atLeast(syncing)
		}
		if details {
			state.pipeline = s.pipelineOf(c.Name, r)
			out.Resources[r.Name] = state
		}
	}
	return out
}

func (s *Server) serveClusters(w http.ResponseWriter, r *http.Request) {
	list := []clusterState{}
	details := s.mayMonitor(r)
	for _, c := range s.mirror.Status().Clusters {
		list = append(list, s.clusterState(c, details))
	}
	answer := map[string]any{"data": list, "time": time.Now()}
	if details {
		answer["server"] = s.usage()
	}
	writeJSON(w, http.StatusOK, answer)
}

func (s *Server) serveCluster(w http.ResponseWriter, r *http.Request) {
	c := routeOf(r).cluster
	status := s.mirror.Status()
	i := slices.IndexFunc(status.Clusters, func(s mirror.ClusterStatus) bool { return s.Name == c.Name() })
	resources, err := c.Resources(r.Context())
	if i < 0 {
		if err == nil {
			err = invalid(s.mirror.Clusters(), "there is no cluster %q", c.Name())
		}
		failWith(w, err)
		return
	}
	details := s.mayMonitor(r)
	out := s.clusterState(status.Clusters[i], details)
	if s.allowed(r, discovering) {
		for _, res := range resources {
			out.Available = append(out.Available, res.Versioned())
		}
	}
	if err != nil {
		if out.Health != failing { // perhaps only a part of discovery has failed
			out.Health = degraded
		}
		if details && out.Error == "" {
			out.Error = err.Error()
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"data": out})
}

// examples explain the routes on the index page.
var examples = [][2]string{
	{"/deploy?labels[k8s-app]=kube-dns", "any resource by any name kubectl accepts, selected by labels"},
	{"/pods?namespace=default&limit=50", "a page; the answer's continue is the next page's parameter"},
	{"/core/v1/pods/kube-system", "by group (core for the legacy one), version and resource, in a namespace"},
	{"/apps/v1/deployments/kube-system/coredns", "one object"},
	{"/pods?fieldSelector=spec.nodeName=worker-1", "labelSelector and fieldSelector as for kubectl"},
	{"/pods?watch=true", "server-sent events, resumed by Last-Event-ID or since="},
	{"/pods?window=true&sort=Age&filter=web", "rows of a sorted table as they change; docs/page.md has the protocol"},
	{"/pods?visible=true", "in the namespaces that you may read, if you may not read all"},
	{"/pods?source=live", "straight from the API server, not from the cache"},
	{"/mcp", "tools for agents, by the Model Context Protocol (POST)"},
	{"/clusters", "the clusters and their health; each of the above also under /clusters/{cluster}"},
	{"/readyz", "whether at least one cluster can be read fresh; ?verbose says which"},
	{"/metrics", "for Prometheus"},
}

func (s *Server) serveIndex(w http.ResponseWriter, r *http.Request) {
	var clusters []string
	var defaultCluster string
	if s.authenticated(r) {
		clusters, defaultCluster = s.mirror.Clusters(), s.mirror.DefaultCluster()
	}
	w.Header().Set("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		page.Serve(w, r, "/")
		return
	}
	if strings.Contains(r.Header.Get("Accept"), "application/json") {
		writeJSON(w, http.StatusOK, map[string]any{
			"name": "tidings", "version": s.opts.Version, "routes": Routes, "parameters": slices.Compact(slices.Sorted(slices.Values(slices.Concat(listParams, watchParams, changesParams, jointParams, diffParams)))),
			"clusters": clusters, "default": defaultCluster, "history": s.opts.Reads.History != nil, "time": time.Now().UTC().Truncate(time.Second),
		})
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Tidings %s: a live mirror of Kubernetes resources. A browser shows them here.\n\n", s.opts.Version)
	for _, e := range examples {
		fmt.Fprintf(&b, "  %-48s %s\n", e[0], e[1])
	}
	switch {
	case !s.authenticated(r):
		b.WriteString("\nAuthentication is needed: a bearer token or a client certificate that the cluster accepts.\n")
	case defaultCluster != "":
		fmt.Fprintf(&b, "\nClusters: %s (%s where none is named)\n", strings.Join(clusters, ", "), defaultCluster)
	default:
		fmt.Fprintf(&b, "\nClusters: %s\n", strings.Join(clusters, ", "))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(b.String()))
}
