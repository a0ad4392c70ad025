package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/mirror"
)

// route is what a path means.
type route struct {
	pattern string // the same for all paths of the route
	kind    kind
	name    string // of the cluster; "" means the default one
	path    string // for kubernetes: what is left of it, escaped

	// cluster is what the name means, looked up once for a request; or nowhere is why
	// there is none.
	cluster *mirror.Cluster
	nowhere error
	api     *kubeapi.Request // for kubernetes: what is asked; nil if the path means nothing

	// For objects. A resource is named alone, or with its group and version.
	resource       string
	group, version string
	versioned      bool
	rest           []string // namespace and name, or name alone, unescaped
	watch          bool     // or anything else that goes on
}

type kind uint8

const (
	index kind = iota
	health
	ready
	metric
	clusterList
	clusterOne
	objects
	kubernetes // the Kubernetes API of a cluster
)

// pages are the paths of one segment that are no resources.
var pages = map[string]kind{
	"healthz": health, "livez": health, "readyz": ready, "metrics": metric, "clusters": clusterList,
}

// Routes are the paths that have a meaning, as patterns.
var Routes = []string{
	"/", "/healthz", "/livez", "/readyz", "/metrics", "/clusters/{cluster}/healthz", "/clusters/{cluster}/livez", "/clusters/{cluster}/readyz",
	"/clusters", "/clusters/{cluster}",
	"/{resource}", "/clusters/{cluster}/{resource}",
	"/{group}/{version}/{resource}", "/clusters/{cluster}/{group}/{version}/{resource}",
	"/{group}/{version}/{resource}/{namespace}", "/clusters/{cluster}/{group}/{version}/{resource}/{namespace}",
	"/{group}/{version}/{resource}/{namespace}/{name}", "/clusters/{cluster}/{group}/{version}/{resource}/{namespace}/{name}",
}

// parsePath reads an escaped path. A slash at its end makes no difference. What is
// of the Kubernetes API is unescaped once, as a whole, and is for others to read.
func parsePath(escaped string) (route, *problem) {
	nowhere := route{pattern: "unknown"}
	var rt route
	rest := escaped
	if behind, ok := strings.CutPrefix(escaped, "/clusters/"); ok {
		name, path, more := strings.Cut(behind, "/")
		plain, err := url.PathUnescape(name)
		if err != nil {
			return nowhere, noRoute("a part of the path is not escaped as it should be")
		}
		if plain != "" {
			rt.pattern, rt.kind, rt.name = "/clusters/{cluster}", clusterOne, plain
			if !more || path == "" {
				return rt, nil
			}
			rest = "/" + path
		}
	}
	if plain, err := url.PathUnescape(rest); err == nil {
		root, _, _ := strings.Cut(strings.TrimLeft(plain, "/"), "/")
		if kubernetesRoots[root] || root == "." || root == ".." { // which lead nowhere there, for who may know
			rt.kind, rt.path = kubernetes, rest
			if rt.pattern += "/api"; kubernetesRoots[root] {
				rt.pattern = strings.TrimSuffix(rt.pattern, "api") + root
			}
			return rt, nil
		}
	}
	path := strings.TrimSuffix(strings.TrimPrefix(rest, "/"), "/")
	if path == "" {
		return route{pattern: "/", kind: index}, nil
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		plain, err := url.PathUnescape(s)
		if err != nil || plain == "" {
			return nowhere, noRoute("a part of the path is empty or not escaped as it should be")
		}
		segments[i] = plain
	}
	if k, ok := pages[segments[0]]; ok && len(segments) == 1 && (rt.name == "" || k == health || k == ready) {
		rt.kind = k
		rt.pattern += "/" + segments[0]
		return rt, nil
	}
	rt.kind = objects
	switch n := len(segments); {
	case n == 1:
		rt.pattern += "/{resource}"
		rt.resource = segments[0]
	case n == 2:
		return nowhere, noRoute("there is nothing of two parts: ask for /" + segments[0] + "?namespace=" + url.QueryEscape(segments[1]) + ", or /{group}/{version}/{resource}/{namespace}")
	case n <= 5:
		rt.versioned, rt.group, rt.version, rt.resource, rt.rest = true, segments[0], segments[1], segments[2], segments[3:]
		if rt.group == "core" {
			rt.group = ""
		}
		rt.pattern += "/{group}/{version}/{resource}" + []string{"", "/{namespace}", "/{namespace}/{name}"}[len(rt.rest)]
	default:
		return nowhere, noRoute("the path has too many parts")
	}
	return rt, nil
}

// ClusterPath is the path beneath which a server has a cluster of that name.
func ClusterPath(name string) string { return "/clusters/" + url.PathEscape(name) }

// escapeCluster escapes the name of a cluster in a path: there are some with
// slashes in them, and client-go, given a server with a path, does not escape
// them again.
func (s *Server) escapeCluster(escaped string) string {
	rest, ok := strings.CutPrefix(escaped, "/clusters/")
	if !ok {
		return escaped
	}
	for _, name := range slices.Backward(s.mirror.Clusters()) { // a longer name comes before its beginning
		if !strings.Contains(name, "/") {
			continue
		}
		plain := (&url.URL{Path: name}).EscapedPath()
		if behind, ok := strings.CutPrefix(rest, plain); ok && (behind == "" || behind[0] == '/') {
			return ClusterPath(name) + behind
		}
	}
	return escaped
}

func noRoute(why string) *problem {
	return &problem{Reason: "NoRoute", Error: why, Exists: Routes}
}

// wantsWatch is for the books; what the query says is read elsewhere.
func wantsWatch(r *http.Request) bool {
	switch r.URL.Query().Get("watch") {
	case "true", "1":
		return true
	}
	return false
}

// serve answers what has a route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	switch rt := routeOf(r); rt.kind {
	case index:
		s.serveIndex(w, r)
	case health:
		s.serveAlive(w, r, rt)
	case ready:
		s.serveReady(w, r, rt)
	case metric:
		s.metrics.handler.ServeHTTP(w, r)
	case clusterList:
		s.serveClusters(w, r)
	case clusterOne:
		s.serveCluster(w, r)
	case objects:
		if rt.watch {
			s.serveObjects(w, r) // uncompressed, so that each event arrives when it is sent
		} else {
			s.objects.ServeHTTP(w, r)
		}
	case kubernetes:
		s.serveKubernetes(w, r)
	}
}
