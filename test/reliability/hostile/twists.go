package hostile

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// twist makes a request hostile. apply returns what it did, "" if it does not apply.
type twist struct {
	weight int
	apply  func(r *rand.Rand, g *generator, q *request) string
}

// escape escapes all of a text, several times over. Zero times returns it unchanged.
func escape(text string, times int) string {
	if times == 0 {
		return text
	}
	var b strings.Builder
	for _, c := range []byte(text) {
		fmt.Fprintf(&b, "%%%s%02X", strings.Repeat("25", times-1), c)
	}
	return b.String()
}

// nasty are characters that servers or proxies may misinterpret.
var nasty = []struct{ name, text string }{
	{"/", "/"}, {".", "."}, {"..", ".."}, {";", ";"}, {"?", "?"}, {"#", "#"}, {"%", "%"}, {`\`, `\`}, {"NUL", "\x00"}, {"CR", "\r"}, {"LF", "\n"}, {"CRLF", "\r\nX-Hidden: 1\r\n"},
	{"tab", "\t"}, {"space", " "}, {"full-width slash", "／"}, {"full-width percent", "％"}, {"one dot leader", "․"}, {"two dot leader", "‥"}, {"division slash", "∕"}, {"full-width a", "ａ"},
	{"overlong slash", "\xc0\xaf"}, {"byte of no character", "\xff"}, {"BOM", "\ufeff"}, {"dotless i", "ı"}, {"+", "+"}, {"*", "*"}, {":", ":"}, {"@", "@"}, {"&", "&"}, {"=", "="}, {",", ","}, {"~", "~"}, {"quote", `"`}, {"<", "<"},
}

// smuggled are path suffixes that lead from one object to another.
var smuggled = []string{
	"/secrets/s-0", "/secrets", "/scale", "/status", "/log", "/../../team-2/secrets/s-0", "/../s-0", "/..", "/.", "/", "?watch=true", "?limit=1", "#", "/../../../namespaces/team-2/secrets",
	"/configmaps/c-0", "/../../nodes/n-0", "?dryRun=All", ";/s-0", "/proxy/", "/namespaces",
}

func times(n int) string {
	return [...]string{"as it is", "escaped once", "escaped twice", "escaped three times"}[n]
}

func (r role) String() string {
	return [...]string{"a fixed part", "the group", "the resource", "the namespace", "the name", "the subresource"}[r]
}

// segment picks a segment of the path, names more often than others.
func (q *request) segment(r *rand.Rand) *segment {
	if len(q.segments) == 0 {
		return nil
	}
	s := &q.segments[r.IntN(len(q.segments))]
	if s.role == fixed {
		s = &q.segments[r.IntN(len(q.segments))]
	}
	return s
}

func (q *request) insert(at int, text string) {
	q.segments = append(q.segments[:at:at], append([]segment{{fixed, text}}, q.segments[at:]...)...)
}

func oneOf(weight int, what string, of func(*rand.Rand, *generator) string, use func(q *request, value string)) twist {
	return twist{weight, func(r *rand.Rand, g *generator, q *request) string {
		value := of(r, g)
		use(q, value)
		if len(value) > 60 {
			value = value[:60] + "…"
		}
		return what + value
	}}
}

func addQuery(q *request, value string) { q.query = append(q.query, value) }

const (
	protobuf = "application/vnd.kubernetes.protobuf"
	meta     = ";g=meta.k8s.io;v=v1"
)

var accepts = []string{
	"application/json", "*/*", "application/yaml", protobuf, protobuf + ",application/json", "application/json;as=Table" + meta, "application/json;as=Table" + meta + ",application/json",
	"application/json;as=PartialObjectMetadataList" + meta, "application/json;as=PartialObjectMetadata" + meta, protobuf + ";as=PartialObjectMetadataList" + meta, protobuf + ";as=Table" + meta, "application/yaml;as=Table" + meta,
	"application/json;pretty=1", "application/json;stream=watch", "application/cbor", "text/html", "nonsense", "application/json;as=Table;g=meta.k8s.io;v=v9", "application/json;as=Table" + meta + ";as=PartialObjectMetadata", "application/json;as=;g=;v=",
	"application/json;as=Table;g=nonsense;v=v1", ",,,", "*", "application/json; charset=utf-7", "application/json;q=0",
	"application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", protobuf + ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
}

var queries = []string{
	"pretty=1", "pretty=false", "timeout=1s", "timeout=0", "timeout=-1s", "timeout=nonsense", tooShort, "timeout=100h", "timeout=", "timeoutSeconds=1", "timeoutSeconds=-1", "timeoutSeconds=0", "timeoutSeconds=nonsense",
	"includeObject=None", "includeObject=Metadata", "includeObject=Object", "includeObject=nonsense", "limit=1", "limit=0", "limit=-1", "limit=nonsense", "limit=99999999999999999999", "limit=9223372036854775807",
	"resourceVersion=0", "resourceVersion=1", "resourceVersion=nonsense", "resourceVersion=-1", "resourceVersion=99999999", "resourceVersion=18446744073709551616", "resourceVersion=", "resourceVersion=0x1", "resourceVersion=%30", "resourceVersion=1&resourceVersion=0",
	"resourceVersionMatch=Exact", "resourceVersionMatch=NotOlderThan", "resourceVersionMatch=nonsense", "resourceVersion=0&resourceVersionMatch=NotOlderThan", "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersion=1&resourceVersionMatch=Exact",
	"allowWatchBookmarks=true", "allowWatchBookmarks=nonsense", "sendInitialEvents=true", "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "sendInitialEvents=false",
	"continue=nonsense", "continue=", "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vYSJ9", "continue=e30", "continue=%00",
	"labelSelector=app", "labelSelector=app%3Da0", "labelSelector=%21app", "labelSelector=((", "labelSelector=canary", "labelSelector=app+in+(a0,a1)", "labelSelector=app%3Da0&labelSelector=app%3Da1", "labelSelector=%00", "labelSelector=%C3%A9",
	"fieldSelector=metadata.name%3Ds-0", "fieldSelector=metadata.namespace%3Dteam-2", "fieldSelector=metadata.namespace%3Dteam-1,metadata.name%3Dc-0", "fieldSelector=metadata.namespace%3Dteam-1&fieldSelector=metadata.namespace%3Dteam-2", "fieldSelector=metadata.name%3D..%2Fsecrets", "fieldSelector=metadata.name%3Dc-0%2F..%2Fs-0", "fieldSelector=metadata.name!%3Ds-0", "fieldSelector=type%3DOpaque", "fieldSelector=spec.nonsense%3D1", "fieldSelector=((",
	"watch=true", "watch=false", "watch=0", "watch=nonsense", "watch=", "watch=true&watch=false", "watch=false&watch=true", "WATCH=true", "export=true", "namespace=team-2", "namespaces=team-2", "name=s-0", "resource=secrets", "apiVersion=v1", "kind=Secret",
	"follow=true", "as=system:admin", "visible=true", "source=live", "since=1", "labels%5Bapp%5D=a0", "dryRun=All", "fieldManager=x", "fieldValidation=Strict", "propagationPolicy=Orphan", "access_token=admin-token", "shardSelector=x", "ignoreStoreReadErrorWithClusterBreakingPotential=true",
	";", "&&&", "%zz=1", "%00=%00", "a=%", "=", "?", "a;b", "watch=tru%65", "w%61tch=true", "x=" + "y",
}

var hostileHeaders = [][2]string{
	{"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", "localhost"}, {"X-Forwarded-Proto", "http"}, {"X-Forwarded-Uri", "/api/v1/secrets"}, {"X-Forwarded-Prefix", "/clusters/tidings"}, {"Forwarded", "for=127.0.0.1;host=localhost"}, {"X-Real-Ip", "127.0.0.1"},
	{"X-Original-URL", "/api/v1/secrets"}, {"X-Rewrite-URL", "/api/v1/namespaces/team-2/secrets/s-0"}, {"X-Original-Uri", "/secrets"}, {"X-HTTP-Method-Override", "DELETE"}, {"X-HTTP-Method", "PUT"}, {"X-Method-Override", "PATCH"},
	{"X-Remote-User", "admin"}, {"X-Remote-Group", "system:masters"}, {"X-Remote-Uid", "1"}, {"X-Remote-Extra-Scopes", "all"}, {"Remote-User", "admin"},
	{"Impersonate-User", "admin"}, {"Impersonate-User", "system:serviceaccount:default:viewer"}, {"Impersonate-User", "system:serviceaccount:default:secret-reader"}, {"Impersonate-User", ""}, {"Impersonate-User", "system:anonymous"}, {"Impersonate-User", "system:serviceaccount:default:"},
	{"Impersonate-Group", "system:masters"}, {"Impersonate-Uid", "1"}, {"Impersonate-Extra-Scopes", "all"}, {"Impersonate-Extra-", "x"}, {"Impersonate-Extra-%zz", "x"}, {"Impersonate-Nonsense", "x"}, {"Impersonate-", "x"}, {"impersonate-user", "system:serviceaccount:default:viewer"}, {"Impersonate_User", "admin"}, {"Impersonate-Username", "admin"},
	{"Authorization", "Bearer admin-token2"}, {"Authorization", "Basic YWRtaW46YWRtaW4="}, {"Cookie", "token=admin-token"}, {"Proxy-Authorization", "Bearer x"}, {"X-Api-Key", "x"},
	{"Expect", "100-continue"}, {"Expect", "nonsense"}, {"Upgrade", "h2c"}, {"Upgrade", "SPDY/3.1"}, {"Connection", "close"}, {"Connection", "Authorization"}, {"Connection", "keep-alive, X-Remote-User"}, {"TE", "trailers"}, {"Range", "bytes=0-10"}, {"If-None-Match", "*"}, {"If-Modified-Since", "Mon, 01 Jan 2035 00:00:00 GMT"},
	{"Accept-Encoding", "gzip"}, {"Accept-Encoding", "gzip;q=0"}, {"Accept-Encoding", "deflate, br"}, {"Accept-Encoding", "identity"}, {"Content-Type", "nonsense"}, {"User-Agent", "Mozilla/5.0"}, {"User-Agent", ""}, {"Origin", "http://evil.example"}, {"Referer", "http://evil.example/"}, {"Access-Control-Request-Method", "DELETE"},
	{"Last-Event-ID", "1"}, {"X-Stream-Protocol-Version", "v5.channel.k8s.io"}, {"Audit-ID", "x"}, {"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, {"X-Kubernetes-Pf-Flowschema-Uid", "x"}, {"Warning", "299 - x"}, {"Max-Forwards", "0"}, {"Via", "1.1 x"},
}

var twists = []twist{
	// Spelling of path segments.
	{8, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		what, depth := pick(r, smuggled...), r.IntN(4)
		if s.role == aNamespace || s.role == fixed {
			what = pick(r, what, "/secrets", "/secrets/s-0", "/configmaps/c-0")
		}
		s.text += escape(what, depth)
		return fmt.Sprintf("%s + %q %s", s.role, what, times(depth))
	}},
	{6, func(r *rand.Rand, g *generator, q *request) string {
		// A whole path within one segment.
		s := q.segment(r)
		if s == nil {
			return ""
		}
		depth := 1 + r.IntN(3)
		sep := escape("/", depth)
		other := pick(r, "team-0", "team-2", "kube-system")
		s.text = pick(r, other+sep+"secrets"+sep+"s-0", other+sep+"secrets", "x"+sep+"scale", other+sep+"configmaps"+sep+"c-0", ".."+sep+other+sep+"secrets"+sep+"s-0", ".."+sep+"secrets"+sep+"s-0")
		return fmt.Sprintf("%s with a path in it, slashes %s", s.role, times(depth))
	}},
	{6, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		c, depth := nasty[r.IntN(len(nasty))], r.IntN(4)
		at := r.IntN(len(s.text) + 1)
		s.text = s.text[:at] + escape(c.text, depth) + s.text[at:]
		return fmt.Sprintf("%s in %s, %s", c.name, s.role, times(depth))
	}},
	{4, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil || s.text == "" {
			return ""
		}
		depth := 1 + r.IntN(3)
		if chance(r, 2) {
			s.text = escape(s.text, depth)
			return fmt.Sprintf("%s %s", s.role, times(depth))
		}
		at := r.IntN(len(s.text))
		s.text = s.text[:at] + escape(s.text[at:at+1], depth) + s.text[at+1:]
		return fmt.Sprintf("a character of %s %s", s.role, times(depth))
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		bad := pick(r, "%", "%2", "%zz", "%u002f", "%c0%af", "%%32%66", "%00", "%2F", "%e2%80%ae")
		s.text += bad
		return fmt.Sprintf("%s + %s", s.role, bad)
	}},
	{4, func(r *rand.Rand, g *generator, q *request) string {
		at := r.IntN(len(q.segments) + 1)
		dots := pick(r, "", "", ".", "..", "%2e", "%2e%2e", "%2E.", "%252e%252e", "...", "x/..", ";", "%2f")
		q.insert(at, dots)
		where := "within"
		switch at {
		case 0:
			where = "at the beginning of"
		case len(q.segments) - 1:
			where = "at the end of"
		}
		return fmt.Sprintf("a part %q %s the path", dots, where)
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		if len(q.segments) == 0 {
			return ""
		}
		i := r.IntN(len(q.segments))
		as := q.segments[i].role
		q.segments[i].text = ""
		return fmt.Sprintf("%s empty", as)
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		if chance(r, 2) {
			s.text = strings.ToUpper(s.text)
		} else if s.text != "" {
			s.text = strings.ToUpper(s.text[:1]) + s.text[1:]
		}
		return s.role.String() + " in upper case"
	}},
	oneOf(2, "behind the path ", func(r *rand.Rand, g *generator) string {
		return pick(r, "/", "//", "/.", "/..", "/%2e", "/%2f", "%2f", ";x=1", "#", "#/secrets", "%23", "%3fwatch=true", "%20", " ", "%09", "%00", "?", "/?/", ".json", "~", `\`)
	}, func(q *request, v string) { q.tail += v }),
	{1, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		n := pick(r, 64, 254, 1000, 9000)
		s.text += strings.Repeat(pick(r, "a", "%61", "%2f", "../"), n)
		return fmt.Sprintf("%s very long", s.role)
	}},
	{1, func(r *rand.Rand, g *generator, q *request) string {
		s := q.segment(r)
		if s == nil {
			return ""
		}
		old := s.text
		s.text = pick(r, "secrets", "namespaces", "watch", "proxy", "status", "scale", "*", "-", "_", "$", "{name}", "null", "undefined", "0", "s-0", "team-2", "api", "apis", "v1", "core")
		if s.text == old {
			return ""
		}
		return fmt.Sprintf("%s being %q", s.role, s.text)
	}},
	{1, func(r *rand.Rand, g *generator, q *request) string {
		if len(q.segments) < 2 {
			return ""
		}
		i := r.IntN(len(q.segments) - 1)
		q.segments[i], q.segments[i+1] = q.segments[i+1], q.segments[i]
		return "two parts exchanged"
	}},
	{1, func(r *rand.Rand, g *generator, q *request) string {
		if q.own || q.prefix != "" {
			return ""
		}
		q.prefix = pick(r, "/clusters/tidings", "/clusters/tidings", "/clusters/%74idings")
		return "beneath " + q.prefix
	}},

	{6, func(r *rand.Rand, g *generator, q *request) string {
		// One segment for a server that unescapes too late, several for one that
		// unescapes too often.
		if len(q.segments) < 2 {
			return ""
		}
		i, depth := r.IntN(len(q.segments)-1), 1+r.IntN(3)
		what := q.segments[i].role.String()
		for n := 1 + r.IntN(3); n > 0 && i+1 < len(q.segments); n-- {
			q.segments[i].text += escape("/", depth) + q.segments[i+1].text
			q.segments = slices.Delete(q.segments, i+1, i+2)
		}
		return fmt.Sprintf("%s joined to what follows by slashes %s", what, times(depth))
	}},

	// Identity and options.
	oneOf(6, "Accept: ", func(r *rand.Rand, g *generator) string { return pick(r, accepts...) }, func(q *request, v string) { q.set("Accept", v) }),
	oneOf(8, "?", func(r *rand.Rand, g *generator) string { return pick(r, queries...) }, func(q *request, v string) {
		addQuery(q, v)
		q.watch = q.watch || strings.Contains(v, "tch=")
	}),
	{2, func(r *rand.Rand, g *generator, q *request) string {
		q.query = append(q.query, "limit=2", "continue="+pick(r, g.tokens...))
		return "a continue token of another caller"
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		q.query = append(q.query, pick(r, "resourceVersion=", "resourceVersionMatch=Exact&resourceVersion=", "resourceVersionMatch=NotOlderThan&resourceVersion=")+pick(r, g.world.version, g.world.before))
		return "a version"
	}},
	{8, func(r *rand.Rand, g *generator, q *request) string {
		h := pick(r, hostileHeaders...)
		if h[0] == "Expect" && q.body == "" {
			return ""
		}
		q.set(h[0], h[1])
		q.origin = q.origin || h[0] == "Origin"
		return h[0] + ": " + h[1]
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		old := q.method
		q.method = pick(r, "HEAD", "HEAD", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "get", "CONNECT", "PURGE")
		if old != "GET" {
			q.method = old
			return ""
		}
		return "method " + q.method
	}},
	{2, func(r *rand.Rand, g *generator, q *request) string {
		q.set("Connection", pick(r, "Upgrade", "upgrade", "keep-alive, Upgrade"))
		q.set("Upgrade", pick(r, "websocket", "WebSocket"))
		q.set("Sec-WebSocket-Version", "13")
		q.set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		out := "a WebSocket"
		switch r.IntN(6) {
		case 0:
			q.bearer = true
			out += ", the token as a subprotocol"
		case 1, 2:
			bad := pick(r, "eA", "", "!!", "eA,"+tokenInside+"eQ", "YWRtaW4")
			q.set("Sec-WebSocket-Protocol", tokenInside+bad+pick(r, ", base64.binary.k8s.io", ""))
			out += ", an unchecked token as a subprotocol"
		case 3:
			q.set("Sec-WebSocket-Protocol", pick(r, "base64.binary.k8s.io", "v4.channel.k8s.io", "nonsense"))
			out += ", a subprotocol"
		}
		if chance(r, 2) {
			q.set("Origin", pick(r, "http://evil.example", "https://evil.example:443", "null", "file://", "http://127.0.0.1", "http://localhost:1", "http://127.0.0.1.evil.example", "http://evil.example/127.0.0.1"))
			q.origin = true
			out += ", of another origin"
		}
		if !chance(r, 3) && !q.watch {
			q.watching(r)
		}
		return out
	}},
	{1, func(r *rand.Rand, g *generator, q *request) string {
		q.host = pick(r, "evil.example", "evil.example:80", "localhost.evil.example", "kubernetes.default.svc", "127.0.0.1.evil.example", "127.1", "0", "localhost@evil.example")
		return "Host: " + q.host
	}},
}
