package hostile

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// role is the meaning of a path segment.
type role int

const (
	fixed role = iota // api, apis, namespaces, watch, a version
	aGroup
	aResource
	aNamespace
	aName
	aSubresource
)

type segment struct {
	role role
	text string // as sent
}

// request is a request before it is encoded.
type request struct {
	form     string   // its path without names, before the twists
	twisted  []string // the names of its twists
	method   string
	prefix   string // of the mirror's paths, before the API server's
	segments []segment
	tail     string   // after the last segment
	query    []string // as sent
	headers  [][2]string
	body     string
	own      bool // a route of the mirror: the API server does not get it
	watch    bool // it may not end
	// bearer sends the token as a subprotocol.
	bearer bool
	host   string // "" is the server's own
	origin bool   // from a page of another origin
}

// path returns the target without query and prefix.
func (q *request) path() string {
	var b strings.Builder
	for _, s := range q.segments {
		b.WriteByte('/')
		b.WriteString(s.text)
	}
	return b.String() + q.tail
}

// target returns the request target for a mirror or the API server.
func (q *request) target(mirror bool) string {
	t := q.path()
	if mirror {
		t = q.prefix + t
	}
	if len(q.query) > 0 {
		t += "?" + strings.Join(q.query, "&")
	}
	return t
}

// shape returns what similar requests have in common.
func (q *request) shape() string {
	out := q.form
	if len(q.twisted) > 0 {
		out += " with " + strings.Join(q.twisted, " and ")
	}
	return out
}

func (q *request) set(name, value string) { q.headers = append(q.headers, [2]string{name, value}) }

func (q *request) header(name string) string {
	for _, h := range q.headers {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

// withoutImpersonation returns the request without impersonation.
func (q *request) withoutImpersonation() *request {
	out := *q
	out.headers = slices.DeleteFunc(slices.Clone(q.headers), func(h [2]string) bool {
		return strings.HasPrefix(strings.ToLower(h[0]), "impersonate-")
	})
	return &out
}

// ofAPI reports whether the API server and the mirror have to give the same answer: the
// path is one of the Kubernetes API, in any spelling.
func (q *request) ofAPI() bool {
	if q.own {
		return false
	}
	path, _, _ := strings.Cut(q.path(), "?")
	plain, err := url.PathUnescape(path)
	if err != nil {
		plain = path
	}
	for part := range strings.SplitSeq(plain, "/") {
		switch part {
		case "", ".", "..":
			continue
		}
		return slices.Contains([]string{"api", "apis", "openapi", "version"}, part)
	}
	return false
}

var infos = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// curl returns the request as a curl command.
func (q *request) curl(as *caller, authorization string) string {
	quote := func(s string) string {
		if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' || r == '\'' }) {
			quoted := fmt.Sprintf("%+q", s)
			return "$'" + strings.ReplaceAll(quoted[1:len(quoted)-1], "'", `\'`) + "'"
		}
		return "'" + s + "'"
	}
	short := func(s string) string {
		if len(s) > 400 {
			return fmt.Sprintf("%s…(%d characters)…%s", s[:150], len(s), s[len(s)-40:])
		}
		return s
	}
	var b strings.Builder
	b.WriteString("curl -sk --http1.1")
	switch q.method {
	case "GET":
	case "HEAD":
		b.WriteString(" -I")
	default:
		b.WriteString(" -X " + q.method)
	}
	if authorization != "" && !q.bearer {
		if as.token != "" {
			authorization = "Bearer $" + strings.ToUpper(strings.ReplaceAll(as.name, "-", "_"))
		}
		b.WriteString(` -H "Authorization: ` + authorization + `"`)
	}
	if q.bearer {
		b.WriteString(" -H 'Sec-WebSocket-Protocol: " + tokenInside + "(the token in base64url), base64.binary.k8s.io'")
	}
	for _, h := range q.headers {
		b.WriteString(" -H " + quote(short(h[0]+": "+h[1])))
	}
	if q.host != "" {
		b.WriteString(" -H 'Host: " + q.host + "'")
	}
	if q.body != "" {
		b.WriteString(" -d " + quote(q.body))
	}
	b.WriteString(" --request-target " + quote(short(q.target(true))) + " $MIRROR")
	return b.String()
}

// pattern returns the path without names.
func (q *request) pattern() string {
	var b strings.Builder
	for _, s := range q.segments {
		text := s.text
		switch {
		case s.role == aGroup:
			text = "{group}"
		case s.role == aResource && text != "secrets" && text != "namespaces":
			text = "{resource}"
		case s.role == aNamespace:
			text = "{namespace}"
		case s.role == aName:
			text = "{name}"
		}
		b.WriteString("/" + text)
	}
	if q.watch {
		b.WriteString(" (watch)")
	}
	return b.String()
}

// plan determines a request: building it again gives the same.
type plan struct {
	form   form
	seed   uint64
	twists []applied
}

type applied struct {
	twist twist
	seed  uint64
}

// build builds the request.
func (p plan) build(g *generator) *request {
	q := &request{method: "GET"}
	p.form.make(rand.New(rand.NewPCG(p.seed, 1)), g, q)
	q.form = q.pattern()
	for _, t := range p.twists {
		if name := t.twist.apply(rand.New(rand.NewPCG(t.seed, 2)), g, q); name != "" {
			q.twisted = append(q.twisted, name)
		}
	}
	return q
}

// without returns the plan without one twist.
func (p plan) without(i int) plan {
	p.twists = slices.Delete(slices.Clone(p.twists), i, i+1)
	return p
}
