package kubeapi

import (
	"io"
	"net/http"
	"net/url"
	"strings"
)

// forward has the API server answer a list, with the mirror's credentials. It is for
// lists of an old state that the mirror does not have but the API server may have. The
// request is built from the authorized query, not from the caller's request. If the API
// server does not accept it, forward writes nothing and returns false.
func (c *call) forward() bool {
	params := url.Values{"resourceVersion": {c.list.ResourceVersion}, "resourceVersionMatch": {string(c.list.ResourceVersionMatch)}}
	for _, name := range []string{"includeObject", "pretty"} { // they select the form
		params[name] = c.r.URL.Query()[name]
	}
	client, req, err := c.q.Upstream(c.r.Context(), params)
	if err != nil {
		return false
	}
	for _, name := range []string{"Accept", "User-Agent"} { // both may affect the form of the answer
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
				panic(http.ErrAbortHandler) // the client must not take the sent part for the whole
			}
		}
	}
	c.w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(c.w, resp.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return true
}
