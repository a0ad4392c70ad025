package fakeapi

import (
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Request is a parsed request to a cluster.
type Request struct {
	User User
	// Verb is the verb for authorization: get, list, watch, create, update,
	// patch, delete or deletecollection, or the HTTP method in lower case if
	// the path is not that of a resource.
	Verb string
	// Resource is empty if the path is not that of a resource.
	Resource    schema.GroupVersionResource
	Namespace   string
	Name        string
	Subresource string
	// HTTP is the request itself. An [Injector] must not read its body.
	HTTP *http.Request
}

// IsResource reports whether the request is for a resource, not for discovery or
// the like.
func (r *Request) IsResource() bool { return r.Resource.Resource != "" }

// IsWatchList reports whether the request is a watch with a streamed initial list.
func (r *Request) IsWatchList() bool {
	send, _ := strconv.ParseBool(r.HTTP.URL.Query().Get("sendInitialEvents"))
	return r.Verb == "watch" && send
}

// parseRequest parses a path of the Kubernetes API: /api/v1/… or
// /apis/GROUP/VERSION/…, then optionally namespaces/NAMESPACE/, then
// RESOURCE[/NAME[/SUBRESOURCE]].
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
	// namespaces/NAME alone, or with a subresource of namespaces, is the
	// namespace itself.
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
