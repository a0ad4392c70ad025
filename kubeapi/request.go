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

	"github.com/tidings-io/tidings/internal/apipath"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// Request is what a request asks of the Kubernetes API of one cluster, read off it
// once. A guard decides on it before [Handler.Serve] answers it.
type Request struct {
	// Info is what kube-apiserver would call it. For what a Query says as well, the
	// Query counts.
	Info *request.RequestInfo
	// Query is what is read, nil for a request that is no read of whole objects, or
	// one that does not make sense.
	Query *read.Query

	reads   bool     // it is a read of whole objects
	ask     read.Ask // of the Query, if there is one
	list    *internalversion.ListOptions
	get     metav1.GetOptions
	invalid error // what is wrong with the parameters or the name, for a caller who may ask
	stray   bool  // it looks like a read, but its path is no resource's
	// noNamespace: it is of all namespaces by an empty one in its path.
	noNamespace bool
}

var infos = &request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// Parse reads a request, whose path is that of a Kubernetes API without any prefix.
// The error says that the path means nothing.
func Parse(r *http.Request, c *mirror.Cluster) (*Request, error) {
	info, err := requestInfo(r)
	if err != nil {
		return nil, err
	}
	ask := read.Ask{
		Cluster: c, Verb: read.Verb(info.Verb), Namespace: info.Namespace,
		Resource: schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource},
	}
	q := &Request{Info: info, ask: ask}
	if !info.IsResourceRequest || r.Method != http.MethodGet || info.Subresource != "" {
		return q, nil
	}
	if len(info.Parts) > 1 {
		ask.Name = info.Parts[1]
	}
	path := apipath.Path{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Namespace: info.Namespace, Name: ask.Name}
	spelling, ok := path.Is(info.Path)
	switch q.noNamespace = spelling.NoNamespace; ask.Verb {
	case read.Get, read.List:
		q.stray = !ok || spelling.Watch
	case read.Watch:
		q.stray, ask.Legacy = !ok, spelling.Watch
	default:
		return q, nil
	}
	if spelling.NoNamespace && info.APIGroup == "" && info.Resource == "namespaces" {
		q.stray = true // they are in none
	}
	q.reads, q.ask = true, ask
	if q.stray {
		return q, nil // nothing is read
	}
	if info.APIGroup == "" && info.Resource == "namespaces" && info.Namespace == info.Name {
		ask.Namespace = "" // it is its own
	}
	q.ask = ask
	if ask.Verb == read.Get {
		q.get, q.invalid = getOptions(r.URL.Query())
		q.Query, err = read.NewQuery(ask)
		q.note(nameError(ask.Name, err))
		return q, nil
	}
	q.list, q.invalid = listOptions(r.URL.Query(), ask.Legacy)
	ask.Labels, ask.Fields = q.list.LabelSelector, q.list.FieldSelector
	if ask.Verb == read.List {
		ask.Limit, ask.Continue = max(0, q.list.Limit), q.list.Continue // less than none is none
	}
	q.note(sameName(q.list, ask.Name))
	q.ask = ask
	q.Query, err = read.NewQuery(ask)
	q.note(err)
	return q, nil
}

// note keeps what is wrong, if nothing was before.
func (q *Request) note(err error) {
	if q.invalid == nil {
		q.invalid = err
	}
}

// requestInfo reads what a request is for off its path, as kube-apiserver does. A
// query that cannot be understood says no more than whether it is a watch; it is
// not logged, and the request is refused when it is its turn.
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

// Streams says that the request goes on until it is ended: a watch, or what a
// container says.
func (q *Request) Streams() bool {
	switch q.Info.Subresource {
	case "attach", "exec", "log", "portforward", "proxy":
		return true
	}
	return strings.EqualFold(q.Info.Verb, "watch") || q.Info.Verb == "proxy"
}

// Reads says that the request reads whole objects.
func (q *Request) Reads() bool { return q.reads }
