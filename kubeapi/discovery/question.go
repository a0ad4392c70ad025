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

// question is what the cluster is asked.
type question struct {
	key
	parts  []string // of the path
	slash  bool     // the path ends in one, which may lead elsewhere
	method string
	hash   string // of a schema, as the caller has it
	// once: the answer is not kept. A caller could invent any number of such
	// questions.
	once bool
}

// key is what an answer is kept by. What a caller can choose in it are the paths
// that the cluster answers, and few representations of each.
type key struct {
	cluster *cluster.Cluster
	path    string
	accept  string
	hashed  bool // the answer is to be of the question's hash
}

func questionOf(c *cluster.Cluster, r *http.Request) (q question, ok bool) {
	q.parts, q.slash, ok = partsOf(r.URL.Path)
	if !ok {
		return q, false
	}
	q.cluster, q.path, q.method = c, "/"+strings.Join(q.parts, "/"), http.MethodGet
	accept := r.Header.Get("Accept") // the first, as the API server reads it
	var usual bool
	if q.accept, usual = representation(q.parts, accept); !usual {
		q.accept = accept
	}
	if q.parts[0] == "openapi" && q.parts[1] == "v3" && len(q.parts) > 2 {
		q.hash = r.URL.Query().Get("hash")
		q.hashed = q.hash != ""
	}
	if r.Method == http.MethodHead && !headed(q.parts) {
		q.method = http.MethodHead
	}
	q.once = !usual || q.slash || q.method == http.MethodHead
	return q, true
}

// url is the address of the question.
func (q question) url() (*url.URL, error) {
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

// longest is the number of parts of a schema's path at most.
const longest = 8

// partsOf reads a path, if it is one of those that are answered: /api,
// /api/{version}, /apis, /apis/{group}, /apis/{group}/{version}, /openapi/v2,
// /openapi/v3, /openapi/v3/… or /version.
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
		ok = len(parts) == 2 && parts[1] == "v2" || len(parts) >= 2 && len(parts) <= longest && parts[1] == "v3"
	case "version":
		ok = len(parts) == 1
	}
	if parts[0] == "openapi" || len(parts) == 1 && parts[0] == "apis" {
		ok = ok && slashes <= 1 // elsewhere kube-apiserver takes any number
	}
	return parts, slashes > 0, ok
}

// headed says that kube-apiserver answers a HEAD of a path as it does a GET. It
// refuses one of the others.
func headed(parts []string) bool {
	return parts[0] == "apis" && len(parts) <= 2 || parts[0] == "openapi"
}

const jsonType = "application/json"

// representations are the media types that kube-apiserver has of a path.
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

// mostAggregated is the number of aggregated forms that a caller may name for
// its answer to be kept: clients name the present one and the one before.
const mostAggregated = 2

// representation is the shortest Accept header that means to kube-apiserver what
// a given one does, see NegotiateMediaTypeOptions in
// k8s.io/apiserver/pkg/endpoints/handlers/negotiation. There are few of them.
// Headers are not usual that it can be asked for but clients do not send, and
// those that it would refuse.
func representation(parts []string, accept string) (same string, usual bool) {
	if accept == "" {
		return jsonType, true
	}
	for clause := range strings.SplitSeq(accept, ",") {
		if mime, _, _ := strings.Cut(clause, ";"); strings.TrimSpace(mime) == "*" {
			return "", false // some of its handlers take it for */*, and some refuse it
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
		case !slices.Contains(have, mediaType): // which is passed over
		case len(clause.Params) == 0:
			if plain == "" {
				plain = mediaType
			}
		case parts[0] == "openapi" || !isAggregated(clause.Params):
			return "", false
		case root: // elsewhere it is passed over
			form := mediaType + ";g=" + clause.Params["g"] + ";v=" + clause.Params["v"] + ";as=" + clause.Params["as"]
			if !slices.Contains(aggregated, form) {
				aggregated = append(aggregated, form)
			}
		}
	}
	if plain != "" {
		aggregated = append(aggregated, plain)
	}
	return strings.Join(aggregated, ","), len(aggregated) > 0 && len(aggregated) <= mostAggregated+1
}

func isAggregated(params map[string]string) bool {
	for _, version := range []string{"v2", "v2beta1"} {
		if maps.Equal(params, map[string]string{"g": "apidiscovery.k8s.io", "v": version, "as": "APIGroupDiscoveryList"}) {
			return true
		}
	}
	return false
}
