package kubeapi

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/apipath"
)

// Request is a parsed request to the Kubernetes API of one cluster. It must be authorized
// before [Handler.Serve] answers it.
type Request struct {
	// Info is kube-apiserver's description of the request. Where Query says the same,
	// Query is authoritative.
	Info *request.RequestInfo
	// Query is the read. It is nil for a request that does not read whole objects, or
	// that is not valid.
	Query *read.Query

	reads       bool        // it is a read of whole objects
	params      read.Params // of the Query, if there is one
	list        *internalversion.ListOptions
	get         metav1.GetOptions
	invalid     error // the error of the parameters or the name, for authorized callers
	notResource bool  // it looks like a read, but its path is not that of a resource
	// noNamespace says that the path has an empty namespace, for all namespaces.
	noNamespace bool
}

var infos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// Parse parses a request. Its path is that of a Kubernetes API without any prefix. Parse
// returns an error for an unknown path.
func Parse(r *http.Request, c *mirror.Cluster) (*Request, error) {
	info, err := requestInfo(r)
	if err != nil {
		return nil, err
	}
	params := read.Params{
		Cluster: c, Verb: read.Verb(info.Verb), Namespace: info.Namespace,
		Resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
	}
	q := &Request{Info: info, params: params}
	if !info.IsResourceRequest || r.Method != http.MethodGet || info.Subresource != "" {
		return q, nil
	}
	if len(info.Parts) > 1 {
		params.Name = info.Parts[1]
	}
	path := apipath.Path{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Namespace: info.Namespace, Name: params.Name}
	spelling, ok := path.Is(info.Path)
	switch q.noNamespace = spelling.NoNamespace; params.Verb {
	case read.Get, read.List:
		q.notResource = !ok || spelling.Watch
	case read.Watch:
		q.notResource, params.Legacy = !ok, spelling.Watch
	default:
		return q, nil
	}
	if spelling.NoNamespace && info.APIGroup == "" && info.Resource == "namespaces" {
		q.notResource = true // namespaces are not namespaced
	}
	q.reads, q.params = true, params
	if q.notResource {
		return q, nil // there is nothing to read
	}
	if info.APIGroup == "" && info.Resource == "namespaces" && info.Namespace == info.Name {
		params.Namespace = "" // kube-apiserver's description names the namespace itself
	}
	q.params = params
	if params.Verb == read.Get {
		q.get, q.invalid = getOptions(r.URL.Query())
		q.Query, err = read.NewQuery(params)
		q.note(nameError(params.Name, err))
		return q, nil
	}
	q.list, q.invalid = listOptions(r.URL.Query(), params.Legacy)
	params.Labels, params.Fields = q.list.LabelSelector, q.list.FieldSelector
	if params.Verb == read.List {
		params.Limit, params.Continue = max(0, q.list.Limit), q.list.Continue // kube-apiserver ignores a negative limit
	}
	q.note(sameName(q.list, params.Name))
	q.params = params
	q.Query, err = read.NewQuery(params)
	q.note(err)
	return q, nil
}

// note sets the error of the request, if it has none.
func (q *Request) note(err error) {
	if q.invalid == nil {
		q.invalid = err
	}
}

// requestInfo parses the path of a request as kube-apiserver does. Of a query string that
// is not valid it uses only the watch parameter, so that the invalid one is not logged;
// the request is refused later.
func requestInfo(r *http.Request) (*request.RequestInfo, error) {
	if r.URL.RawQuery != "" {
		query := r.URL.Query()
		if metainternalversionscheme.ParameterCodec.DecodeParameters(query, metav1.SchemeGroupVersion, &internalversion.ListOptions{}) != nil {
			plain, target := *r, *r.URL
			target.RawQuery = ""
			if watch, ok := query["watch"]; ok {
				target.RawQuery = url.Values{"watch": watch[:1]}.Encode()
			}
			plain.URL = &target
			r = &plain
		}
	}
	return infos.NewRequestInfo(r)
}

// Streams reports whether the answer is a stream without an end of its own, such as a
// watch or the log of a container.
func (q *Request) Streams() bool {
	switch q.Info.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return strings.EqualFold(q.Info.Verb, "watch") || q.Info.Verb == "proxy"
}

// Reads reports whether the request reads whole objects.
func (q *Request) Reads() bool { return q.reads }
