package hostile

import (
	"net/http"
	"strings"
)

// difference is a documented difference between mirror and API server.
type difference struct {
	reason string
	// text is the beginning of the sentence in docs/server.md that documents it.
	text    string
	applies func(x *exchange) bool
}

// differences are the allowed differences. Each matches only one kind of request and
// answer, so it does not mask others.
var differences = []difference{
	{
		"who shows nothing is nobody to the mirror, and system:anonymous to the API server",
		"There are no anonymous callers where callers are authenticated: who says nothing gets `401`",
		func(x *exchange) bool {
			return !x.mirror.loopback && x.caller.token == "" && x.ours.status == http.StatusUnauthorized
		},
	},
	{
		"writes and subresources are not for a mirror",
		"What is not a read of a mirrored resource is refused with `405`",
		func(x *exchange) bool {
			if x.mirror.passthrough || x.ours.status != http.StatusMethodNotAllowed {
				return false
			}
			read := x.q.method == http.MethodGet || x.q.method == http.MethodHead
			return !read || x.info != nil && x.info.IsResourceRequest && x.info.Subresource != ""
		},
	},
	{
		"Secrets that were not asked for",
		"Secrets only if named.",
		func(x *exchange) bool {
			return x.mirror.withoutSecrets && !x.mirror.passthrough && x.ours.status == http.StatusForbidden && x.info != nil && x.info.Resource == "secrets"
		},
	},
	{
		"a path or headers that are very long",
		"| headers; body; query of the plain routes | 64 kB; 3 MB; 8 kB | 431; 413; 414 |",
		func(x *exchange) bool {
			return x.ours.status == http.StatusRequestHeaderFieldsTooLarge && len(x.q.target(true)) > 32<<10
		},
	},
	{
		"pages of other origins",
		"A page of another origin may open a WebSocket with a token only",
		func(x *exchange) bool {
			return x.q.origin && strings.EqualFold(x.q.header("Upgrade"), "websocket") && x.ours.status == http.StatusForbidden
		},
	},
	{
		"without authentication, names other than this machine's",
		"it listens on loopback addresses, and answers only requests addressed to them",
		func(x *exchange) bool {
			return x.mirror.loopback && x.q.host != "" && x.ours.status == http.StatusForbidden
		},
	},
	{
		"what is no request there",
		"A path of which kube-apiserver can make no request",
		func(x *exchange) bool {
			odd := x.info == nil || x.info.Namespace == "." || x.info.Namespace == ".." || x.info.Name == "." || x.info.Name == ".."
			refused := x.ours.status >= http.StatusBadRequest && x.ours.status <= http.StatusForbidden // depending on the order of checks
			return odd && refused && x.theirs.status == http.StatusInternalServerError
		},
	},
	{
		"HEAD of resources",
		"`HEAD` of a resource is refused with `405`",
		func(x *exchange) bool {
			return x.q.method == http.MethodHead && x.ours.status == http.StatusMethodNotAllowed && x.info != nil && x.info.IsResourceRequest
		},
	},
	{
		"parts and dates of OpenAPI",
		"Parts and dates of OpenAPI documents are not served",
		func(x *exchange) bool {
			part := x.theirs.status == http.StatusPartialContent || x.theirs.status == http.StatusNotModified
			return x.ours.status == http.StatusOK && part && x.info != nil && strings.HasPrefix(x.info.Path, "/openapi/")
		},
	},
	{
		"the type of a body that there is not",
		"The `Content-Type` of a request without a body is not looked at",
		func(x *exchange) bool {
			discovery := x.info == nil || !x.info.IsResourceRequest
			return discovery && x.ours.status == http.StatusOK && x.theirs.status == http.StatusUnsupportedMediaType
		},
	},
	{
		"methods that are handed on nowhere",
		"`CONNECT` is refused with `405`",
		func(x *exchange) bool {
			read := x.q.method == http.MethodGet || x.q.method == http.MethodHead
			discovery := x.info == nil || !x.info.IsResourceRequest
			return x.mirror.passthrough && x.ours.status == http.StatusMethodNotAllowed && (x.q.method == http.MethodConnect || !read && discovery)
		},
	},
	{
		"empty parts behind a custom resource",
		"A custom resource with empty parts behind it",
		func(x *exchange) bool {
			return x.ours.status == http.StatusNotFound && x.theirs.status == http.StatusOK && x.info != nil && x.info.APIGroup == customGroup &&
				strings.Contains(strings.TrimRight(x.info.Path, "/"), "//")
		},
	},
	{
		"a watch of one object whose namespace is empty",
		"A watch of the older form with an empty namespace and a name",
		func(x *exchange) bool {
			return x.ours.status == http.StatusBadRequest && x.theirs.status == http.StatusOK && x.info != nil && strings.Contains(x.info.Path, "/watch/namespaces//")
		},
	},
	{
		"two ways to say who asks for a WebSocket",
		"A WebSocket request that has both",
		func(x *exchange) bool {
			if strings.EqualFold(x.q.header("Upgrade"), "SPDY/3.1") {
				return x.ours.status == http.StatusUnauthorized && x.theirs.status == http.StatusForbidden
			}
			both := x.ours.status == http.StatusSwitchingProtocols && x.theirs.status == http.StatusBadRequest && x.caller.token != ""
			return x.q.header("Sec-WebSocket-Protocol") != "" && both
		},
	},
	{
		"wrong in several ways",
		"A request that is wrong in several ways",
		func(x *exchange) bool {
			refused := func(status int) bool { return status >= 400 && status < 500 }
			return len(x.q.twisted) > 1 && refused(x.ours.status) && refused(x.theirs.status)
		},
	},
}
