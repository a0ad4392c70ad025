package fakeapi

import (
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// ServeHTTP speaks the Kubernetes API. Injected faults may make it panic with
// [net/http.ErrAbortHandler], which an http.Server turns into a broken
// connection.
func (c *Cluster) ServeHTTP(w http.ResponseWriter, httpReq *http.Request) {
	req := parseRequest(httpReq)
	if down := c.count(req); down {
		panic(http.ErrAbortHandler)
	}
	user, err := c.authenticate(httpReq)
	if err != nil {
		writeStatus(w, httpReq, err)
		return
	}
	req.User = user
	var fault *Fault
	if intercept := c.interceptor(); intercept != nil {
		if fault, w = intercept(w, req); w == nil {
			return
		}
	}
	if err := c.authorize(req); err != nil {
		writeStatus(w, httpReq, err)
		return
	}
	if !req.IsResource() {
		c.serveOther(w, httpReq)
		return
	}
	if review := c.review(req); review != nil {
		review(w, httpReq)
		return
	}
	r, ok := c.lookup(req.Resource)
	if !ok || r.info.Namespaced && req.Namespace == "" && req.Name != "" || !r.info.Namespaced && req.Namespace != "" {
		http.NotFound(w, httpReq) // plain text, as from a kube-apiserver
		return
	}
	call := &call{Request: req, cluster: c, res: r, fault: fault}
	if err := call.serve(w); err != nil {
		writeStatus(w, httpReq, err)
	}
}

// call is a request for a resource.
type call struct {
	*Request
	cluster *Cluster
	res     *resource
	fault   *Fault
}

func (c *call) serve(w http.ResponseWriter) error {
	status := c.Subresource == "status" && c.res.hasStatus
	switch {
	case c.Subresource == "scale" && c.res.scales:
		return c.serveScale(w)
	case c.Subresource != "" && !status:
		http.NotFound(w, c.HTTP)
		return nil
	case c.Verb == "get":
		return c.serveGet(w)
	case c.Verb == "list":
		return c.serveList(w)
	case c.Verb == "watch":
		return c.serveWatch(w)
	case c.Verb == "create" && c.Name == "":
		return c.serveCreate(w)
	case c.Verb == "update" && c.Name != "":
		return c.serveUpdate(w)
	case c.Verb == "patch" && c.Name != "":
		return c.servePatch(w)
	case c.Verb == "delete" && !status:
		return c.serveDelete(w)
	case c.Verb == "deletecollection":
		return c.serveDeleteCollection(w)
	}
	return apierrors.NewMethodNotSupported(c.res.group(), strings.ToLower(c.Verb))
}

// serveOther serves requests that are not for a resource.
func (c *Cluster) serveOther(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		http.NotFound(w, req)
		return
	}
	path := "/" + strings.Trim(req.URL.Path, "/")
	switch {
	case path == "/":
		c.serveRoot(w, req)
	case path == "/healthz" || path == "/livez" || path == "/readyz":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok"))
	case path == "/version":
		serveVersion(w)
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		c.serveOpenAPI(w, req, path)
	default:
		c.serveDiscovery(w, req, path)
	}
}
