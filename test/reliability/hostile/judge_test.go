package hostile

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
)

// A rig that sees nothing finds nothing.
func TestJudge(t *testing.T) {
	w := &world{rnd: rand.New(rand.NewPCG(1, 1)), canaries: map[string]location{}}
	secrets, configMaps := resources[0], resources[1]
	secret := w.canary(secrets, "team-0", "s-0", "content")
	theirs := w.canary(configMaps, "team-1", "c-0", "content")
	others := w.canary(configMaps, "team-2", "c-0", "content")
	namespace := w.canary(namespaces, "", "team-1", "label")
	callers := map[string]*caller{"admin": {name: "admin", token: "x", all: true}, "unauthenticated": {name: "unauthenticated"}}
	for _, c := range users() {
		c.token = "x"
		callers[c.name] = c
	}
	list := func(q *request) *request {
		q.method = "GET"
		for _, s := range []string{"api", "v1", "configmaps"} {
			q.add(fixed, s)
		}
		return q
	}
	ok := func(body string) answer { return answer{status: 200, whole: true, body: []byte(body)} }
	status := func(code int) answer { return answer{status: code, whole: true} }
	loopback := &mirror{loopback: true, withoutSecrets: true}
	plain, without := &mirror{}, &mirror{withoutSecrets: true}
	for name, c := range map[string]struct {
		caller       string
		mirror       *mirror
		q            *request
		ours, theirs answer
		want         []kind
	}{
		"what the caller may see":            {"viewer", plain, list(&request{}), ok(theirs + namespace), ok(theirs + namespace), nil},
		"what others may see":                {"viewer", plain, list(&request{}), ok(others), ok(others), []kind{leaked}},
		"what nobody may see":                {"admin", without, list(&request{}), ok(secret), ok(secret), []kind{leaked}},
		"a header":                           {"viewer", plain, list(&request{}), answer{status: 200, whole: true, header: http.Header{"X": {others}}}, ok(others), []kind{leaked}},
		"what the request said itself":       {"viewer", plain, list(&request{query: []string{"continue=" + others}}), ok(others), ok(others), nil},
		"less than there is":                 {"admin", plain, list(&request{}), ok(theirs), ok(theirs + others), []kind{otherObjects}},
		"an answer instead of a refusal":     {"viewer", plain, list(&request{}), ok(""), status(403), []kind{otherStatus}},
		"a server error":                     {"viewer", plain, list(&request{}), status(500), status(403), []kind{failed, otherStatus}},
		"the server error of the API server": {"viewer", plain, list(&request{}), status(500), status(500), nil},
		"no answer":                          {"viewer", plain, list(&request{}), status(0), status(200), []kind{silent}},
		"a page of another origin":           {"admin", loopback, list(&request{origin: true}), status(101), status(101), []kind{foreign}},
		"another host":                       {"admin", loopback, list(&request{host: "evil.example"}), ok(""), ok(""), []kind{foreign}},
		"unauthenticated":                    {"unauthenticated", plain, list(&request{}), status(401), status(403), nil},
		"somebody known":                     {"viewer", plain, list(&request{}), status(401), status(403), []kind{otherStatus}},
	} {
		x := &exchange{q: c.q, caller: callers[c.caller], mirror: c.mirror, ours: c.ours, theirs: c.theirs, asked: true, info: understand(c.q)}
		var got []kind
		for _, f := range w.judge(x, false) {
			got = append(got, f.kind)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: found %v, want %v", name, got, c.want)
		}
	}
}

// The same seed asks the same.
func TestSeedsRepeat(t *testing.T) {
	g := &generator{world: &world{version: "2", before: "1"}, tokens: []string{"t"}, pages: []string{"p"}, positions: []string{"i"}}
	methods, targets := map[string]int{}, map[string]int{}
	for n := range uint64(5000) {
		ask := func() string {
			q := g.plan(rand.New(rand.NewPCG(7, n))).build(g)
			methods[q.method]++
			targets[q.target(true)]++
			return string(q.bytes(q.target(true), "host", "Bearer x", "x"))
		}
		if a, b := ask(), ask(); a != b {
			t.Fatalf("request %d is %q and %q", n, a, b)
		}
	}
	if len(methods) < 8 || len(targets) < 3000 {
		t.Errorf("%d methods and %d targets are few", len(methods), len(targets))
	}
}
