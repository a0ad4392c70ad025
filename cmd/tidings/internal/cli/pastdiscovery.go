package cli

import (
	"net/http"
	"net/url"
	"strings"
)

// pastDiscovery makes the requests of a command about the past. A mirror whose cluster is
// away cannot say what that serves; then its history says it.
type pastDiscovery struct {
	next http.RoundTripper
	base string // the path before that of the Kubernetes API
}

// RoundTrip implements [http.RoundTripper].
func (t pastDiscovery) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.StatusCode < http.StatusInternalServerError || !t.discovers(req) {
		return resp, err
	}
	past := req.Clone(req.Context())
	past.URL.RawQuery = url.Values{"at": {"-0s"}}.Encode()
	known, err := t.next.RoundTrip(past)
	switch {
	case err != nil:
		return resp, nil
	case known.StatusCode != http.StatusOK:
		_ = known.Body.Close()
		return resp, nil
	}
	_ = resp.Body.Close()
	return known, nil
}

func (t pastDiscovery) discovers(req *http.Request) bool {
	path := strings.TrimPrefix(req.URL.EscapedPath(), t.base)
	_, resource := parseResourcePath(path)
	root, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return req.Method == http.MethodGet && !resource && (root == "api" || root == "apis")
}

// WrappedRoundTripper implements the interface by which client-go finds the
// underlying transport.
func (t pastDiscovery) WrappedRoundTripper() http.RoundTripper { return t.next }
