package kubeapi

import (
	"io"
	"net/http"
	"strings"

	"github.com/tidings-io/tidings/internal/apipath"
)

// forward lets the cluster's API server answer a read itself, with the mirror's
// credentials: what the mirror cannot answer, because it is about a state from
// before its time, and the API server may still know. It returns false, and
// nothing is answered, if that does not let the mirror ask.
func (c *call) forward() bool {
	client, base := c.q.Upstream()
	r := c.q.Resource
	target, err := apipath.Path{Group: r.Group, Version: r.Version, Resource: r.Resource, Namespace: c.q.Namespace, Name: c.q.Name}.URL(base)
	if err != nil {
		return false
	}
	target.RawQuery = c.r.URL.RawQuery
	req, err := http.NewRequestWithContext(c.r.Context(), http.MethodGet, target.String(), nil)
	if err != nil {
		return false
	}
	for _, name := range []string{"Accept", "User-Agent"} { // which may both matter to the form of the answer
		if value := c.r.Header.Get(name); value != "" {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.StatusCode >= http.StatusInternalServerError {
		return false
	}
	for _, name := range []string{"Content-Type", "Retry-After"} {
		if value := resp.Header.Get(name); value != "" {
			c.w.Header().Set(name, value)
		}
	}
	if acceptsGzip(c.r) && strings.HasPrefix(resp.Header.Get("Content-Type"), "application/") && resp.StatusCode == http.StatusOK {
		b := c.begin(resp.Header.Get("Content-Type"))
		part := make([]byte, 32<<10)
		for {
			n, err := resp.Body.Read(part)
			b.add(part[:n])
			if err == io.EOF {
				b.end()
				return true
			}
			if err != nil {
				panic(http.ErrAbortHandler) // what was sent must not be taken for the whole
			}
		}
	}
	c.w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(c.w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}
