// Package apipath builds the addresses of requests to an API server. Every part
// of a path stays one segment, whatever is in it: what a caller sends cannot
// lead to another path than the one that was authorized.
package apipath

import (
	"fmt"
	"net/url"
	"strings"
)

// Join appends parts to the path of base, each as one escaped segment. A part
// that is empty, "." or "..", or that holds a slash or a percent sign is an error:
// servers, and proxies that decode once more, may take it for another path, and
// nothing in the API is called so. The query and the fragment of base
// are left out. base is not changed.
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
