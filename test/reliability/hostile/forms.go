package hostile

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// form is a kind of ordinary request.
type form struct {
	name   string
	weight int
	make   func(r *rand.Rand, g *generator, q *request)
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// chance returns true with probability 1/n.
func chance(r *rand.Rand, n int) bool { return r.IntN(n) == 0 }

// some returns a random resource, more often one with sensitive content.
func some(r *rand.Rand) resource {
	if chance(r, 4) {
		return pick(r, resources[:2]...)
	}
	return pick(r, resources...)
}

func where(r *rand.Rand, scoped bool) (out resource) {
	for {
		if out = some(r); out.namespaced == scoped {
			return out
		}
	}
}

// nameOf returns the name of an object that may exist.
func nameOf(r *rand.Rand, k resource) string {
	switch {
	case k == namespaces:
		return pick(r, namespaceNames...)
	case k.plural == "replicasets":
		return "x"
	}
	return strings.NewReplacer(" ", "%20", "é", "%C3%A9").Replace(k.prefix) + pick(r, "0", "1", "9", "past", "later")
}

// root adds /api/v1 or /apis/group/version.
func (q *request) root(k resource) {
	if k.group == "" {
		q.add(fixed, "api", "v1")
		return
	}
	q.add(fixed, "apis")
	q.add(aGroup, k.group)
	q.add(fixed, k.version)
}

func (q *request) add(as role, texts ...string) {
	for _, t := range texts {
		q.segments = append(q.segments, segment{as, t})
	}
}

func (q *request) in(namespace string) {
	q.add(fixed, "namespaces")
	q.add(aNamespace, namespace)
}

var discoveryPaths = []string{
	"/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/" + customGroup, "/apis/" + customGroup + "/v1", "/version", "/openapi/v2", "/openapi/v3",
	"/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/apis/nonsense", "/apis/nonsense/v1", "/api/v9", "/apis/apps/v9", "/openapi", "/openapi/v4", "/openapi/v3/nonsense",
}

var forms = []form{
	{"list in a namespace", 6, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, true)
		q.root(k)
		q.in(g.namespace(r))
		q.add(aResource, k.plural)
	}},
	{"list everywhere", 4, func(r *rand.Rand, g *generator, q *request) {
		k := some(r)
		q.root(k)
		q.add(aResource, k.plural)
	}},
	{"get in a namespace", 8, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, true)
		q.root(k)
		q.in(g.namespace(r))
		q.add(aResource, k.plural)
		q.add(aName, nameOf(r, k))
	}},
	{"get of the cluster", 4, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, false)
		q.root(k)
		q.add(aResource, k.plural)
		q.add(aName, nameOf(r, k))
	}},
	{"get of a namespace", 3, func(r *rand.Rand, g *generator, q *request) {
		q.add(fixed, "api", "v1", "namespaces")
		q.add(aName, g.namespace(r))
	}},
	{"watch", 2, func(r *rand.Rand, g *generator, q *request) {
		k := some(r)
		q.root(k)
		if k.namespaced && !chance(r, 3) {
			q.in(g.namespace(r))
		}
		q.add(aResource, k.plural)
		q.watching(r)
	}},
	{"watch by path", 2, func(r *rand.Rand, g *generator, q *request) {
		k := some(r)
		q.root(k)
		q.add(fixed, "watch")
		if k.namespaced && !chance(r, 3) {
			q.in(g.namespace(r))
		}
		q.add(aResource, k.plural)
		if chance(r, 3) {
			q.add(aName, nameOf(r, k))
		}
		q.watch = true
	}},
	{"watch of one by its path", 1, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, true)
		q.root(k)
		q.in(g.namespace(r))
		q.add(aResource, k.plural)
		q.add(aName, nameOf(r, k))
		q.watching(r)
	}},
	{"subresource", 4, func(r *rand.Rand, g *generator, q *request) {
		k := some(r)
		q.root(k)
		if k.namespaced {
			q.in(g.namespace(r))
		}
		q.add(aResource, k.plural)
		q.add(aName, nameOf(r, k))
		q.add(aSubresource, pick(r, "status", "scale", "log", "nonsense", "secrets", "proxy", "finalize", "token"))
		if chance(r, 5) {
			q.add(aName, pick(r, "x", "s-0", "status"))
		}
	}},
	{"namespaces in a namespace", 4, func(r *rand.Rand, g *generator, q *request) {
		q.add(fixed, "api", "v1")
		q.in(g.namespace(r))
		q.add(aResource, "namespaces")
		if chance(r, 2) {
			q.add(aName, g.namespace(r))
		}
	}},
	{"watch of namespaces in a namespace", 1, func(r *rand.Rand, g *generator, q *request) {
		q.add(fixed, "api", "v1")
		if chance(r, 2) {
			q.add(fixed, "watch")
			q.watch = true
		} else {
			q.watching(r)
		}
		q.in(g.namespace(r))
		q.add(aResource, "namespaces")
	}},
	{"of the cluster in a namespace", 2, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, false)
		q.root(k)
		q.in(g.namespace(r))
		q.add(aResource, k.plural)
		if chance(r, 2) {
			q.add(aName, nameOf(r, k))
		}
		if chance(r, 8) {
			q.watching(r)
		}
	}},
	{"get without its namespace", 1, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, true)
		q.root(k)
		q.add(aResource, k.plural)
		q.add(aName, nameOf(r, k))
	}},
	{"in another group", 1, func(r *rand.Rand, g *generator, q *request) {
		k := where(r, true)
		switch r.IntN(4) {
		case 0:
			q.add(fixed, "apis", "v1")
		case 1:
			q.add(fixed, "apis", "core", "v1")
		case 2:
			q.root(pick(r, resources...))
		default:
			q.add(fixed, "api", pick(r, "v2", "v1beta1", "apps"))
		}
		q.in(g.namespace(r))
		q.add(aResource, k.plural)
		if chance(r, 2) {
			q.add(aName, nameOf(r, k))
		}
	}},
	{"discovery", 3, func(r *rand.Rand, g *generator, q *request) {
		q.add(fixed, strings.Split(pick(r, discoveryPaths...)[1:], "/")...)
	}},
	{"discovery of the past", 2, func(r *rand.Rand, g *generator, q *request) {
		q.own = true // the API server does not know it
		q.add(fixed, strings.Split(pick(r, discoveryPaths...)[1:], "/")...)
		if chance(r, 3) {
			q.prefix = "/clusters/" + pick(r, "tidings", "nowhere")
		}
		q.query = append(q.query, pick(r, "at=-0s", "at=-1h", "at=1", "at=2999-01-01T00:00:00Z", "at=", "at=-1s&at=-1h", "at=-1s&continue="+pick(r, g.pages...)))
	}},
	{"own rights", 1, func(r *rand.Rand, g *generator, q *request) {
		q.method = "POST"
		q.add(fixed, "apis")
		kind := pick(r, "SelfSubjectAccessReview", "SelfSubjectRulesReview", "SelfSubjectReview")
		group := "authorization.k8s.io"
		spec := `{"resourceAttributes":{"verb":"get","resource":"secrets","namespace":"team-2"}}`
		switch kind {
		case "SelfSubjectRulesReview":
			spec = `{"namespace":"team-1"}`
		case "SelfSubjectReview":
			group, spec = "authentication.k8s.io", `{}`
		}
		q.add(aGroup, group)
		q.add(fixed, "v1")
		q.add(aResource, strings.ToLower(kind)+"s")
		q.body = `{"kind":"` + kind + `","apiVersion":"` + group + `/v1","spec":` + spec + `}`
		if kind == "SelfSubjectReview" {
			q.body = strings.Replace(q.body, `,"spec":{}`, "", 1)
		}
		q.set("Content-Type", "application/json")
	}},
	{"write", 2, func(r *rand.Rand, g *generator, q *request) {
		k := some(r)
		q.method = pick(r, "POST", "PUT", "PATCH", "DELETE")
		q.root(k)
		if k.namespaced {
			q.in(g.namespace(r))
		}
		q.add(aResource, k.plural)
		if q.method != "POST" {
			q.add(aName, nameOf(r, k))
		}
		q.query = append(q.query, "dryRun=All")
		q.body = `{"metadata":{"name":"` + k.prefix + `new"}}`
		q.set("Content-Type", pick(r, "application/json", "application/merge-patch+json", "application/yaml"))
	}},
	{"health", 1, func(r *rand.Rand, g *generator, q *request) {
		q.own = true
		q.add(fixed, strings.Split(pick(r, "healthz", "livez", "readyz", "metrics", "clusters", "healthz/ping", "clusters/tidings", "clusters/tidings/readyz", "clusters/tidings/livez"), "/")...)
		if chance(r, 3) {
			q.query = append(q.query, "verbose")
		}
	}},
	{"own route of a resource", 3, func(r *rand.Rand, g *generator, q *request) {
		q.ownRoute(r)
		k := some(r)
		q.add(aResource, pick(r, k.plural, k.plural, k.plural+"."+k.group))
		q.ownQuery(r, g)
	}},
	{"own route by version", 5, func(r *rand.Rand, g *generator, q *request) {
		q.ownRoute(r)
		k := some(r)
		q.add(aGroup, k.group)
		if k.group == "" {
			q.segments[len(q.segments)-1].text = "core"
		}
		q.add(fixed, k.version)
		q.add(aResource, k.plural)
		if k.namespaced && !chance(r, 4) {
			q.add(aNamespace, g.namespace(r))
		}
		if chance(r, 2) {
			q.add(aName, nameOf(r, k))
		}
		q.ownQuery(r, g)
	}},
	{"changes in a namespace", 4, func(r *rand.Rand, g *generator, q *request) { // that its callers may read
		q.ownRoute(r)
		k := where(r, true)
		q.add(aGroup, cmp.Or(k.group, "core"))
		q.add(fixed, k.version)
		q.add(aResource, k.plural)
		q.add(aNamespace, g.namespace(r))
		q.query = append(q.query, "changes=true", "since="+g.since)
		if !chance(r, 4) {
			q.query = append(q.query, "objects=true")
		}
		switch r.IntN(4) {
		case 0:
			q.query = append(q.query, "limit=1", "continue="+pick(r, g.pages...))
		case 1:
			q.query = append(q.query, pick(r, "fieldSelector=metadata.namespace%3Dteam-2", "namespace=team-2", "labelSelector=app", "limit=2"))
		}
	}},
	{"tool of an agent", 4, func(r *rand.Rand, g *generator, q *request) {
		q.ownRoute(r)
		q.add(fixed, "mcp")
		q.method = "POST"
		q.set("Content-Type", "application/json")
		q.set("Accept", "application/json, text/event-stream")
		k := some(r)
		arguments := map[string]any{"resource": pick(r, k.plural, k.plural, k.plural+"."+k.group, k.plural+","+k.plural)}
		if k.namespaced && !chance(r, 3) {
			arguments["namespace"] = g.namespace(r)
		}
		for _, name := range slices.Sorted(maps.Keys(toolArguments)) {
			if chance(r, 4) {
				arguments[name] = pick(r, toolArguments[name]...)
			}
		}
		tool := pick(r, "clusters", "find", "count", "get", "changes", "at", "tree", "wait")
		if tool == "clusters" {
			delete(arguments, "resource")
			delete(arguments, "namespace")
		}
		for name, value := range map[string]map[string]any{
			"get": {"name": nameOf(r, k)}, "tree": {"name": nameOf(r, k)}, "at": {"moment": pick(r, "-0s", "-1s", "-1h", "1")},
			"changes": {"since": pick(r, g.since, "-1h", "1", "2,1")}, "wait": {"name": nameOf(r, k), "for": pick(r, "create", "delete", ".data.x!=y"), "seconds": 1},
		}[tool] {
			arguments[name] = value
		}
		if !chance(r, 8) { // what the tool takes
			for name := range toolArguments {
				if !strings.Contains(toolTakes[tool], " "+name+" ") {
					delete(arguments, name)
				}
			}
		}
		message, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": arguments}})
		q.body = string(message)
	}},
	{"nothing that there is", 1, func(r *rand.Rand, g *generator, q *request) {
		q.own = true
		q.add(fixed, strings.Split(pick(r, "", "logs", "debug/pprof/", ".well-known/openid-configuration", "openid/v1/jwks", "clusters/other/api/v1/secrets", "clusters/", "clusters//api", "clusters/tidings", "pods/team-1", "core/v1/pods/team-1/p-0/log", "index.html", "configz"), "/")...)
	}},
}

// toolArguments are values of arguments of tools, and toolTakes which of them each takes.
var (
	toolArguments = map[string][]any{
		"cluster": {"tidings", "nowhere", "..", ""}, "columns": {"*", "Name,.data", []string{".metadata.annotations", ".data.x"}}, "by": {"Name", ".data", ".metadata.labels"},
		"fields": {".data", ".metadata", ".metadata.annotations,.spec"}, "filter": {"tidingscanary", "a", "!a"}, "sort": {"-Age", ".data.x", "Name"}, "labelSelector": {"app", "x in (", "!app"},
		"fieldSelector": {"metadata.namespace=team-2", "metadata.name=x"}, "limit": {1, 500, -1}, "from": {1, 1000000}, "maxBytes": {65536, 1024, 1}, "neighbours": {true, "x"}, "until": {"-0s", "1"},
	}
	toolTakes = map[string]string{
		"clusters": " cluster filter maxBytes ", "find": " cluster labelSelector fieldSelector filter columns sort from limit maxBytes ", "count": " cluster labelSelector fieldSelector filter by maxBytes ",
		"get": " cluster fields from maxBytes ", "changes": " cluster labelSelector fieldSelector until from maxBytes ", "at": " cluster fields labelSelector fieldSelector filter columns sort from limit maxBytes ",
		"tree": " cluster neighbours maxBytes ", "wait": " cluster fields maxBytes ",
	}
)

// watching turns a list into a watch.
func (q *request) watching(r *rand.Rand) {
	q.watch = true
	q.query = append(q.query, pick(r, "watch=true", "watch=1", "watch", "watch=yes"))
}

func (q *request) ownRoute(r *rand.Rand) {
	q.own = true
	if chance(r, 4) {
		q.add(fixed, "clusters", pick(r, "tidings", "tidings", "nowhere"))
	}
}

// ownQuery adds parameters of the mirror's own routes.
func (q *request) ownQuery(r *rand.Rand, g *generator) {
	if chance(r, 3) {
		q.query = append(q.query, "watch=true")
		q.watch = true
		switch r.IntN(3) {
		case 0:
			q.query = append(q.query, "since="+pick(r, g.positions...))
		case 1:
			q.set("Last-Event-ID", pick(r, g.positions...))
		}
	}
	for range r.IntN(3) {
		q.query = append(q.query, pick(r, "visible=true", "source=live", "source=cache", "limit=1", "limit=2", "continue="+pick(r, g.pages...), "namespace="+g.namespace(r),
			"namespace=team-2", "fieldSelector=metadata.name%3Ds-0", "fieldSelector=metadata.namespace%3Dteam-2", "labelSelector=app", "labels%5Bapp%5D=a0"))
	}
	if chance(r, 6) { // of one object: what belongs to it
		q.query = append(q.query, "tree=true", pick(r, "neighbours=true", "neighbours=true", "neighbours=x", "source=live", "at=-10s", "tree=true", "limit=1"))
	}
	if chance(r, 6) { // a window, which stays open
		q.watch = true
		q.query = append(q.query, "window=true", pick(r, "visible=true", "count=5", "count=0", "count=501", "first=-1", "first=999999", "sort=Name&descending=true", "sort=x", "filter=s-0", "filter=%21%00", "columns=%2A", "columns=Name,Age", "columns=", "columns=.metadata.labels", "columns=.a[*].b", "clusters=%2A", "clusters=a*a*a*a*b", "namespace=default,kube-system"))
	}
	switch {
	case chance(r, 4): // the past
		q.query = append(q.query, pick(r, "at=-1ms", "at=-10s", "at=-1h", "at=1", "at=2999-01-01T00:00:00Z", "at="+g.world.before, "at="+g.world.version, "objects=true", "since=-1h&until=-1s"))
	case chance(r, 3):
		q.query = append(q.query, "changes=true", pick(r, "objects=true", "objects=true", "objects=false", "limit=1", "at=-1s"), pick(r, "since="+g.since, "since="+g.since, "since="+g.since, "since=-1h", "since=-1h&until=-1s", "since=2999-01-01T00:00:00Z", "since=5", "visible=true"))
		if chance(r, 2) { // of this caller, or of another; a cursor with other parameters
			q.query = append(q.query, "continue="+pick(r, g.pages...))
		}
	}
}

func (g *generator) namespace(r *rand.Rand) string {
	if chance(r, 3) {
		return "team-1"
	}
	return pick(r, append(slices.Clone(namespaceNames), "nowhere")...)
}
