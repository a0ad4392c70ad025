// Package apipath builds the URLs of requests to an API server. Each part of a path
// stays one segment, whatever it contains, so a caller's input cannot lead to a path
// other than the authorized one.
package apipath

import (
	"fmt"
	"net/url"
	"strings"
)

// Join appends parts to the path of base, each as one escaped segment, and drops the
// query and the fragment of base. It returns an error for a part that is empty, "."
// or "..", or that contains a slash or a percent sign: servers, and proxies that
// decode twice, may read it as a different path, and nothing in the API has such a
// name. Join does not change base.
func Join(base *url.URL, parts ...string) (*url.URL, error) {
	out := *base
	out.RawQuery, out.ForceQuery, out.Fragment, out.RawFragment = "", false, "", ""
	out.Path = strings.TrimRight(base.Path, "/")
	out.RawPath = strings.TrimRight(base.EscapedPath(), "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/%") {
			return nil, fmt.Errorf("%q cannot be a part of a path: use a name that is not empty, not . or .. and has no slash or percent sign", part)
		}
		out.Path += "/" + part
		out.RawPath += "/" + url.PathEscape(part)
	}
	return &out, nil
}
