package kubeapi

import (
	"io"
	"net/http"
	"net/url"
	"strings"
)

// forward lets the cluster's API server answer a read itself, with the mirror's
// credentials: what the mirror cannot answer, because it is about a state from
// before its time, and the API server may still know. The request is built from the
// query that was authorized, not from the caller's. It returns false, and
// nothing is answered, if that does not let the mirror ask.
func (c *call) forward() bool {
	params := url.Values{"resourceVersion": {c.list.ResourceVersion}, "resourceVersionMatch": {string(c.list.ResourceVersionMatch)}}
	for _, name := range []string{"includeObject", "pretty"} { // of the form
		params[name] = c.r.URL.Query()[name]
	}
	client, req, err := c.q.Upstream(c.r.Context(), params)
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
