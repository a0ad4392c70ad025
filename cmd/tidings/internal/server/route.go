package server

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/page"
)

// route is a parsed path.
type route struct {
	pattern string // the same for all paths of the route
	kind    kind
	name    string // of the cluster; "": the default cluster
	path    string // for kubernetes: the rest of the path, escaped

	// The cluster is looked up once for each request. If there is none, clusterErr says
	// why.
	cluster    *mirror.Cluster
	clusterErr error
	api        *kubeapi.Request // for kubernetes: the parsed request; nil if the path is invalid

	// For objects. The path has the resource alone, or its group and version as well.
	resource       string
	group, version string
	versioned      bool
	rest           []string // namespace and name, or name alone, unescaped
	watch          bool     // or an upgraded connection

	header http.Header // for tools: as it was received, with the credentials

	action *access.Attributes // what an authenticated caller asks for, set by the guard
}

type kind uint8

const (
	index kind = iota
	asset      // a file of the page
	health
	ready
	metric
	clusterList
	clusterOne
	objects
	jointWindow // of objects of several clusters; each is a request of its own
	kubernetes  // the Kubernetes API of a cluster
	tools       // the Model Context Protocol; each read of a tool is a request of its own
)

// public reports whether the route needs no authentication. Its content depends on the
// caller.
func (rt route) public() bool {
	return rt.kind == index || rt.kind == ready || rt.kind == asset || rt.kind == jointWindow
}

// pageKinds are the paths of one segment that are not resources.
var pageKinds = map[string]kind{
	"healthz": health, "livez": health, "readyz": ready, "metrics": metric, "clusters": clusterList, "mcp": tools,
}

// Routes are the patterns of all routes.
var Routes = []string{
	"/", "/page/app.js", "/page/app.css", "/page/icon.svg", "/healthz", "/livez", "/readyz", "/metrics", "/clusters/{cluster}/healthz", "/clusters/{cluster}/livez", "/clusters/{cluster}/readyz",
	"/clusters", "/clusters/{cluster}", "/mcp", "/clusters/{cluster}/mcp",
	"/{resource}", "/clusters/{cluster}/{resource}",
	"/{group}/{version}/{resource}", "/clusters/{cluster}/{group}/{version}/{resource}",
	"/{group}/{version}/{resource}/{namespace}", "/clusters/{cluster}/{group}/{version}/{resource}/{namespace}",
	"/{group}/{version}/{resource}/{namespace}/{name}", "/clusters/{cluster}/{group}/{version}/{resource}/{namespace}/{name}",
}

// parsePath parses an escaped path. A trailing slash makes no difference. A path of the
// Kubernetes API is not parsed further here.
func parsePath(escaped string) (route, *problem) {
	unknown := route{pattern: "unknown"}
	var rt route
	rest := escaped
	if suffix, ok := strings.CutPrefix(escaped, "/clusters/"); ok {
		name, path, more := strings.Cut(suffix, "/")
		unescaped, err := url.PathUnescape(name)
		if err != nil {
			return unknown, noRoute("a segment of the path is not escaped correctly")
		}
		if unescaped != "" {
			rt.pattern, rt.kind, rt.name = "/clusters/{cluster}", clusterOne, unescaped
			if !more || path == "" {
				return rt, nil
			}
			rest = "/" + path
		}
	}
	if unescaped, err := url.PathUnescape(rest); err == nil {
		root, _, _ := strings.Cut(strings.TrimLeft(unescaped, "/"), "/")
		if kubernetesRoots[root] || root == "." || root == ".." { // the Kubernetes API answers those with 404 after authentication
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
	if page.Has("/" + path) {
		return route{pattern: "/" + path, kind: asset}, nil
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		unescaped, err := url.PathUnescape(s)
		if err != nil || unescaped == "" {
			return unknown, noRoute("a segment of the path is empty or not escaped correctly")
		}
		segments[i] = unescaped
	}
	if k, ok := pageKinds[segments[0]]; ok && len(segments) == 1 && (rt.name == "" || k == health || k == ready || k == tools) {
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
		return unknown, noRoute("no route has two segments: use /" + segments[0] + "?namespace=" + url.QueryEscape(segments[1]) + ", or /{group}/{version}/{resource}/{namespace}")
	case n <= 5:
		rt.versioned, rt.group, rt.version, rt.resource, rt.rest = true, segments[0], segments[1], segments[2], segments[3:]
		if rt.group == "core" {
			rt.group = ""
		}
		rt.pattern += "/{group}/{version}/{resource}" + []string{"", "/{namespace}", "/{namespace}/{name}"}[len(rt.rest)]
	default:
		return unknown, noRoute("the path has too many segments")
	}
	return rt, nil
}

// ClusterPath returns the path under which a server serves a cluster.
func ClusterPath(name string) string { return "/clusters/" + url.PathEscape(name) }

// escapeCluster escapes the name of the cluster in a path. Some names have slashes in
// them, and client-go, given a server URL with a path, does not escape them again.
func (s *Server) escapeCluster(escaped string) string {
	rest, ok := strings.CutPrefix(escaped, "/clusters/")
	if !ok {
		return escaped
	}
	for _, name := range slices.Backward(s.mirror.Clusters()) { // a longer name before its own prefix
		if !strings.Contains(name, "/") {
			continue
		}
		inPath := (&url.URL{Path: name}).EscapedPath()
		if suffix, ok := strings.CutPrefix(rest, inPath); ok && (suffix == "" || suffix[0] == '/') {
			return ClusterPath(name) + suffix
		}
	}
	return escaped
}

func noRoute(why string) *problem {
	return &problem{Reason: "NoRoute", Error: why, Exists: Routes}
}

// wantsWatch reports whether a REST request is a watch or a window, which stay open,
// before its query is parsed and validated: limits depend on it.
func wantsWatch(r *http.Request) bool {
	query := r.URL.Query()
	return isTrue(query.Get("watch")) || isTrue(query.Get("window"))
}

// serve dispatches a request by its route.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	switch rt := routeOf(r); rt.kind {
	case index:
		s.serveIndex(w, r)
	case asset:
		page.Serve(w, r, routeOf(r).pattern)
	case health:
		s.serveLive(w, r, rt)
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
	case tools:
		s.serveTools(w, r)
	}
}
