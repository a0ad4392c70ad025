package discovery

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/apipath"
)

// upstreamRequest is a request to the cluster.
type upstreamRequest struct {
	key
	parts  []string // of the path
	slash  bool     // the path ends in a slash, which may make a difference
	method string
	hash   string // of the schema that the caller has
	// uncached says that the answer is not cached, because callers can invent any
	// number of such requests.
	uncached bool
}

// key is the key of a cached answer. Callers can choose only the paths that the cluster
// serves, and few representations of each.
type key struct {
	cluster *cluster.Cluster
	path    string
	accept  string
	hashed  bool // the request has a hash, which the answer must have too
}

func newUpstreamRequest(c *cluster.Cluster, r *http.Request) (q upstreamRequest, ok bool) {
	q.parts, q.slash, ok = partsOf(r.URL.Path)
	if !ok {
		return q, false
	}
	q.cluster, q.path, q.method = c, "/"+strings.Join(q.parts, "/"), http.MethodGet
	accept := r.Header.Get("Accept") // the first one, as in the API server
	var usual bool
	if q.accept, usual = representation(q.parts, accept); !usual {
		q.accept = accept
	}
	if q.parts[0] == "openapi" && q.parts[1] == "v3" && len(q.parts) > 2 {
		q.hash = r.URL.Query().Get("hash")
		q.hashed = q.hash != ""
	}
	if r.Method == http.MethodHead && !headLikeGet(q.parts) {
		q.method = http.MethodHead
	}
	q.uncached = !usual || q.slash || q.method == http.MethodHead
	return q, true
}

// url returns the URL of the request.
func (q upstreamRequest) url() (*url.URL, error) {
	out, err := apipath.Join(q.cluster.BaseURL(), q.parts...)
	if err != nil {
		return nil, err
	}
	if q.slash {
		out.Path += "/"
		out.RawPath += "/"
	}
	if q.hashed {
		out.RawQuery = url.Values{"hash": {q.hash}}.Encode()
	}
	return out, nil
}

// longest is the maximum number of parts of a schema's path.
const maxParts = 8

// partsOf splits a path, and reports whether it is served: /api, /api/{version}, /apis,
// /apis/{group}, /apis/{group}/{version}, /openapi/v2, /openapi/v3, /openapi/v3/… or
// /version.
func partsOf(path string) (parts []string, slash, ok bool) {
	short := strings.TrimRight(path, "/")
	slashes := len(path) - len(short)
	parts = strings.Split(strings.TrimPrefix(short, "/"), "/")
	if slices.ContainsFunc(parts, func(part string) bool {
		return part == "" || part == "." || part == ".." || strings.Contains(part, "%")
	}) {
		return nil, false, false
	}
	switch parts[0] {
	case "api":
		ok = len(parts) <= 2
	case "apis":
		ok = len(parts) <= 3
	case "openapi":
		ok = len(parts) == 2 && parts[1] == "v2" || len(parts) >= 2 && len(parts) <= maxParts && parts[1] == "v3"
	case "version":
		ok = len(parts) == 1
	}
	if parts[0] == "openapi" || len(parts) == 1 && parts[0] == "apis" {
		ok = ok && slashes <= 1 // for other paths kube-apiserver allows any number
	}
	return parts, slashes > 0, ok
}

// headLikeGet reports whether kube-apiserver answers a HEAD of a path like a GET. It refuses
// the HEAD of other paths.
func headLikeGet(parts []string) bool {
	return parts[0] == "apis" && len(parts) <= 2 || parts[0] == "openapi"
}

const jsonType = "application/json"

// representations returns the media types of a path in kube-apiserver.
func representations(parts []string) []string {
	const specs = "application/com.github.proto-openapi.spec."
	switch {
	case parts[0] == "version":
		return []string{jsonType}
	case parts[0] == "openapi":
		return []string{jsonType, specs + parts[1] + "@v1.0+protobuf", specs + parts[1] + ".v1.0+protobuf"}
	}
	return []string{jsonType, "application/yaml", "application/vnd.kubernetes.protobuf"}
}

// maxAggregated is the maximum number of aggregated forms in a request whose answer is
// cached: clients name the present form and the previous one.
const maxAggregated = 2

// representation returns the shortest Accept header that has the same meaning to
// kube-apiserver as a given one, see NegotiateMediaTypeOptions in
// k8s.io/apiserver/pkg/endpoints/handlers/negotiation. There are few of them. usual is
// false for headers that clients do not send, and for those that kube-apiserver refuses.
func representation(parts []string, accept string) (same string, usual bool) {
	if accept == "" {
		return jsonType, true
	}
	for clause := range strings.SplitSeq(accept, ",") {
		if mime, _, _ := strings.Cut(clause, ";"); strings.TrimSpace(mime) == "*" {
			return "", false // some handlers of kube-apiserver treat it as */*, and some refuse it
		}
	}
	root := len(parts) == 1 && parts[0] != "version"
	have := representations(parts)
	var plain string
	var aggregated []string
	for _, clause := range goautoneg.ParseAccept(accept) {
		mediaType := clause.Type + "/" + clause.SubType
		if mediaType == "*/*" && len(clause.Params) == 0 {
			mediaType = jsonType
		}
		switch {
		case strings.Contains(mediaType, "*") || clause.SubType == "cbor":
			return "", false
		case !slices.Contains(have, mediaType): // ignored
		case len(clause.Params) == 0:
			if plain == "" {
				plain = mediaType
			}
		case parts[0] == "openapi" || !isAggregated(clause.Params):
			return "", false
		case root: // ignored for other paths
			form := mediaType + ";g=" + clause.Params["g"] + ";v=" + clause.Params["v"] + ";as=" + clause.Params["as"]
			if !slices.Contains(aggregated, form) {
				aggregated = append(aggregated, form)
			}
		}
	}
	if plain != "" {
		aggregated = append(aggregated, plain)
	}
	return strings.Join(aggregated, ","), len(aggregated) > 0 && len(aggregated) <= maxAggregated+1
}

func isAggregated(params map[string]string) bool {
	for _, version := range []string{"v2", "v2beta1"} {
		if maps.Equal(params, map[string]string{"g": "apidiscovery.k8s.io", "v": version, "as": "APIGroupDiscoveryList"}) {
			return true
		}
	}
	return false
}
