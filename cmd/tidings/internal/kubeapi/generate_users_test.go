package kubeapi_test

import (
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// tables are the Accept headers of clients that print tables. The last is kubectl's.
var tables = []string{
	"application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1beta1;g=meta.k8s.io", "application/yaml;as=Table;v=v1;g=meta.k8s.io",
	protobuf + ";as=Table;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v2;g=meta.k8s.io,application/json",
	"application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
}

// about are paths of discovery and of other endpoints that are not resources.
var about = []string{
	"/api", "/api/", "/apis", "/apis/", "/api/v1", "/api/v1/", "/apis/apps", "/apis/apps/", "/apis/apps/v1", "/apis/batch", "/apis/batch/v1", "/apis/kubeapi.example.com", "/apis/kubeapi.example.com/v1",
	"/apis/rbac.authorization.k8s.io/v1", "/apis/apiregistration.k8s.io/v1", "/apis/apiextensions.k8s.io/v1", "/apis/nonsense", "/apis/nonsense/v1", "/apis/apps/v9", "/api/v9",
	"/version", "/version/", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/kubeapi.example.com/v1", "/openapi/v3/apis/nonsense/v1", "/openapi/v3/nonsense", "/openapi", "/openapi/v4",
	"/healthz", "/livez", "/readyz", "/livez?verbose", "/readyz?verbose", "/healthz/ping", "/livez/etcd", "/metrics", "/", "/logs", "/configz", "/.well-known/openid-configuration", "/openid/v1/jwks",
}

// discoveries are Accept headers for discovery.
var discoveries = []string{
	"", "application/json", "*/*", "application/yaml", protobuf, "text/html", "nonsense",
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json",
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", protobuf + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
	"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf,application/json",
}

// elsewhere are paths of subresources and of resources that are not mirrored.
var elsewhere = []string{
	"/api/v1/namespaces/default/pods/pod-1/status", "/api/v1/namespaces/team-a/pods/pod-1/log", "/apis/apps/v1/namespaces/team-a/deployments/deployment-2/scale", "/apis/apps/v1/namespaces/default/deployments/deployment-2/nonsense",
	"/apis/metrics.k8s.io/v1beta1/nodes", "/api/v1/namespaces/team-a/bindings", "/apis/authentication.k8s.io/v1/tokenreviews", "/api/v1/namespaces/team-a/status",
}

// generateAny makes a random request of any kind.
func generateAny(rnd *rand.Rand, p *population, seen *memory) ask {
	switch c := rnd.IntN(20); {
	case c < 3:
		path, query, _ := strings.Cut(pick(rnd, about...), "?")
		q := ask{path: path, accept: pick(rnd, discoveries...), header: http.Header{}}
		if query != "" {
			q.query = url.Values{query: {""}}
		}
		if chance(rnd, 4) {
			q.header.Set("Accept-Encoding", pick(rnd, "gzip", "identity"))
		}
		return q
	case c < 4:
		return ask{path: pick(rnd, elsewhere...), accept: accept(rnd, false), header: http.Header{}}
	}
	q := generate(rnd, p, seen)
	if chance(rnd, 3) && q.query.Get("continue") == "" {
		q.accept = pick(rnd, tables...)
		if chance(rnd, 3) {
			q.query.Set("includeObject", pick(rnd, "None", "Metadata", "Object", "nonsense", ""))
		}
	}
	return q
}

// generateWatch makes a random watch that ends within a second.
func generateWatch(rnd *rand.Rand, p *population, seen *memory) ask {
	k := things[rnd.IntN(len(things))]
	namespace := ""
	if k.namespaced && chance(rnd, 2) {
		namespace = pick(rnd, append(spaces, "nowhere")...)
	}
	q := ask{path: k.path(namespace, ""), header: http.Header{}, query: url.Values{"watch": {pick(rnd, "true", "1")}, "timeoutSeconds": {"3"}}}
	if chance(rnd, 8) { // the old way
		q.path = strings.Replace(q.path, "/v1/", "/v1/watch/", 1)
		q.query.Del("watch")
	}
	switch rnd.IntN(8) {
	case 0:
		q.query.Set("resourceVersion", "0")
	case 1:
		q.query.Set("resourceVersion", pick(rnd, "abc", "-1", "99999999999", "99999999999999999999999", ""))
	case 2, 3, 4:
		q.query.Set("resourceVersion", seen.version(rnd))
	case 5:
		q.query.Set("sendInitialEvents", pick(rnd, "true", "true", "true", "false", "1", "abc"))
		q.query.Set("resourceVersionMatch", pick(rnd, "NotOlderThan", "NotOlderThan", "NotOlderThan", "Exact", ""))
		q.query.Set("allowWatchBookmarks", "true")
		q.query.Set("resourceVersion", pick(rnd, "", "0", seen.version(rnd)))
	}
	if chance(rnd, 2) {
		q.query.Set("allowWatchBookmarks", pick(rnd, "true", "false"))
	}
	if chance(rnd, 3) {
		q.query.Set("labelSelector", pick(rnd, "app=red", "app!=red", "app in (red,blue)", "!app", "(("))
	}
	if chance(rnd, 3) {
		q.query.Set("fieldSelector", pick(rnd, append(slices.Clone(k.fields), "metadata.name=configmap-1", "metadata.namespace=team-a", "spec.nonsense=1", "((")...))
	}
	if chance(rnd, 25) {
		q.query.Set("limit", "2")
	}
	q.accept = pick(rnd, "", "application/json", "application/json;stream=watch", protobuf, protobuf+",application/json", protobuf+";stream=watch", "application/yaml", "text/html", "nonsense", "*/*",
		"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", protobuf+";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", tables[0], tables[len(tables)-1])
	if k.untyped { // a known difference
		q.accept = regexp.MustCompile(protobuf+`(,|;stream=watch|$)`).ReplaceAllString(q.accept, "application/json$1")
		if k.resource == "apiservices" && strings.Contains(q.accept, "as=Table") { // whose server has columns of its own
			q.accept = ""
		}
	}
	return q
}
