package hostile

import (
	"net/http"
	"strings"
)

// difference is one that users are told of.
type difference struct {
	reason string
	// text is the beginning of the sentence in docs/server.md that says so.
	text    string
	applies func(x *exchange) bool
}

// differences are all that are allowed. Each is about one kind of request and of
// answer, so that it hides nothing else.
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
}
