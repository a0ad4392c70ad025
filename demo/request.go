package demo

import (
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is what a request to a cluster is about.
type Request struct {
	User User
	// Verb is the one authorisation goes by: get, list, watch, create,
	// update, patch, delete or deletecollection; for paths that are not
	// about a resource the HTTP method in lower case.
	Verb string
	// Resource is empty for paths that are not about a resource.
	Resource    schema.GroupVersionResource
	Namespace   string
	Name        string
	Subresource string
	// HTTP is the request itself. Its body must not be read.
	HTTP *http.Request
}

// IsResource tells requests about a resource from others, like discovery.
func (r *Request) IsResource() bool { return r.Resource.Resource != "" }

// IsWatchList reports whether a watch asks for its initial list as a stream.
func (r *Request) IsWatchList() bool {
	send, _ := strconv.ParseBool(r.HTTP.URL.Query().Get("sendInitialEvents"))
	return r.Verb == "watch" && send
}

// parseRequest takes a request's path apart by the rules of the Kubernetes
// API: /api/v1/… or /apis/GROUP/VERSION/…, then RESOURCE[/NAME[/SUBRESOURCE]],
// the whole possibly below namespaces/NAMESPACE/.
func parseRequest(httpReq *http.Request) *Request {
	req := &Request{HTTP: httpReq, Verb: strings.ToLower(httpReq.Method)}
	parts := strings.Split(strings.Trim(httpReq.URL.Path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		req.Resource.Version = parts[1]
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		req.Resource.Group, req.Resource.Version = parts[1], parts[2]
		parts = parts[3:]
	default:
		return req
	}
	// A path below a namespace is about the namespace itself when it ends
	// there or goes on with one of its subresources.
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		req.Namespace = parts[1]
		parts = parts[2:]
	}
	req.Resource.Resource = parts[0]
	if len(parts) > 1 {
		req.Name = parts[1]
	}
	if len(parts) > 2 {
		req.Subresource = strings.Join(parts[2:], "/")
	}
	switch httpReq.Method {
	case http.MethodGet, http.MethodHead:
		watching, err := strconv.ParseBool(httpReq.URL.Query().Get("watch"))
		switch {
		case watching && err == nil && req.Subresource == "":
			req.Verb = "watch"
		case req.Name == "":
			req.Verb = "list"
		default:
			req.Verb = "get"
		}
	case http.MethodPost:
		req.Verb = "create"
	case http.MethodPut:
		req.Verb = "update"
	case http.MethodDelete:
		req.Verb = "delete"
		if req.Name == "" {
			req.Verb = "deletecollection"
		}
	}
	return req
}
