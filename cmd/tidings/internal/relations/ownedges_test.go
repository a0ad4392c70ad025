package relations

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
)

const ownEdges = `edges:
- from: certs.own.example.com
  to: secrets
  name: is written to
  expression: self.spec.secretName
- {from: certs.own.example.com, to: issuers.own.example.com, name: is signed by, optional: true, expression: 'self.spec.?issuer'}
- from: certs.own.example.com
  to: nodes
  name: lives on
  expression: |
    has(self.spec.nodes)
      ? self.spec.nodes : []
- {from: netpolicies.own.example.com, to: pods, name: is for, expression: self.spec.endpointSelector}
- {from: widepolicies.own.example.com, to: pods, name: is for, expression: self.spec.endpointSelector}
- {from: secrets, to: certs.own.example.com, name: tells, expression: 'has(self.data) || has(self.stringData) || has(self.metadata.annotations) && self.metadata.annotations.size() > 0 ? "can" + "ary" : self.metadata.name.replace("-tls", "")'}
- {from: absents.own.example.com, to: pods, name: never, expression: self.metadata.name}
`

// Edges of one's own lead forth and back on a real control plane, under the rights of the
// caller, and what fails is said.
func TestOwnEdgesOfARealCluster(t *testing.T) {
	cp := controlplane.Shared(t)
	const ns = "own-edges"
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	for plural, kind := range map[string]string{"certs": "Cert", "issuers": "Issuer", "netpolicies": "NetPolicy", "widepolicies": "WidePolicy"} {
		post(t, client, cp.URL(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(plural, kind, "own.example.com", ""))
	}
	in := func(plural, kind, name, rest string) struct{ path, object string } {
		path := "/apis/own.example.com/v1/namespaces/" + ns + "/" + plural
		if kind == "WidePolicy" {
			path = "/apis/own.example.com/v1/" + plural
		}
		return struct{ path, object string }{path, `{"apiVersion":"own.example.com/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"spec":` + rest + `}`}
	}
	for _, o := range []struct{ path, object string }{
		{"/api/v1/namespaces", `{"metadata":{"name":"` + ns + `"}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"own-node"}}`},
		{"/api/v1/namespaces/" + ns + "/secrets", `{"metadata":{"name":"web-tls","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{\"data\":{}}"}},"data":{"tls.key":"Y2FuYXJ5"}}`},
		{"/api/v1/namespaces/" + ns + "/pods", `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`},
		{"/api/v1/namespaces/" + ns + "/serviceaccounts", `{"metadata":{"name":"other"}}`},
		in("certs", "Cert", "web", `{"secretName":"web-tls","issuer":"none","nodes":["own-node"]}`),
		in("certs", "Cert", "broken", `{"nodes":[7]}`),
		in("certs", "Cert", "elsewhere", `{"secretName":"no/such/name"}`),
		in("netpolicies", "NetPolicy", "web", `{"endpointSelector":{"matchLabels":{"app":"web"}}}`),
		in("netpolicies", "NetPolicy", "wrong", `{"endpointSelector":{"matchLables":{"app":"web"}}}`),
		in("widepolicies", "WidePolicy", "all", `{"endpointSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}}`),
	} {
		post(t, client, cp.URL(), o.path, o.object)
	}
	c := mirrored(t, cp)
	edges, err := ParseEdges("edges.yaml", []byte(ownEdges))
	if err != nil {
		t.Fatal(err)
	}
	reader := &Reader{Reads: read.New(read.Options{}), Edges: edges}
	own := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "own.example.com", Version: "v1", Resource: resource}
	}
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	links := func(tree *Tree) (out []string) {
		for _, n := range tree.Neighbours.Objects {
			for _, l := range n.Links {
				if n.Missing {
					l.To += " (missing)"
				}
				out = append(out, l.From+" "+l.Relation+" "+l.To)
			}
		}
		return out
	}
	for _, c := range []struct {
		name string
		tree *Tree
		want []string
	}{
		{"a Cert", treeOf(t, reader, c, own("certs"), ns, "web"), []string{
			"Cert/web is written to Secret/web-tls", "Cert/web is signed by Issuer/none (missing)", "Cert/web lives on Node/own-node", "Secret/web-tls tells Cert/web"}},
		{"a Secret", treeOf(t, reader, c, core("secrets"), ns, "web-tls"), []string{"Cert/web is written to Secret/web-tls", "Secret/web-tls tells Cert/web"}},
		{"a Node", treeOf(t, reader, c, core("nodes"), "", "own-node"), []string{"Cert/web lives on Node/own-node"}},
		{"a Pod", treeOf(t, reader, c, core("pods"), ns, "web"), []string{"NetPolicy/web is for Pod/web", "WidePolicy/all is for Pod/web"}},
		{"a policy", treeOf(t, reader, c, own("netpolicies"), ns, "web"), []string{"NetPolicy/web is for Pod/web"}},
		{"a wide policy", treeOf(t, reader, c, own("widepolicies"), "", "all"), []string{"WidePolicy/all is for Pod/web"}},
	} {
		got := links(c.tree)
		for _, want := range c.want {
			if !slices.Contains(got, want) {
				t.Errorf("%s: %q is not in %q", c.name, want, got)
			}
		}
		if text, _ := json.Marshal(c.tree); bytes.Contains(text, []byte("canary")) {
			t.Errorf("%s tells the data of a Secret: %s", c.name, text)
		}
	}

	// What fails is said of the node, and of the resource whose objects were searched.
	for name, want := range map[string][]string{
		"certs/broken": {`edge "is written to": no such key: secretName`, `edge "lives on": it gives neither a name`}, "certs/elsewhere": {`"no/such/name" is not a name`},
		"netpolicies/wrong": {`unknown field "matchLables"`},
	} {
		resource, name, _ := strings.Cut(name, "/")
		tree := treeOf(t, reader, c, own(resource), ns, name)
		for _, want := range want {
			if !slices.ContainsFunc(tree.Object.Unknown, func(f Finding) bool { return strings.Contains(f.Message, want) }) {
				t.Errorf("%s: %q is not said in %+v", name, want, tree.Object.Unknown)
			}
		}
		if len(tree.Cause) > 0 {
			t.Errorf("%s: what is not known is taken for a cause: %+v", name, tree.Cause)
		}
	}
	pod := treeOf(t, reader, c, core("pods"), ns, "web")
	if i := slices.IndexFunc(pod.Unlooked, func(u Unlooked) bool { return u.Resource == "netpolicies.own.example.com" }); i < 0 || !strings.Contains(pod.Unlooked[i].Why, "of 1 of its objects it is not known where they lead") {
		t.Errorf("not looked at: %+v", pod.Unlooked)
	}

	// The nodes found are the caller's.
	reader.Authorize = func(_ context.Context, q *read.Query) error {
		if p := q.Params(); p.Resource.Resource == "secrets" || p.Resource.Resource == "netpolicies" {
			return apierrors.NewForbidden(p.Resource.GroupResource(), p.Name, nil)
		}
		return nil
	}
	tree := treeOf(t, reader, c, own("certs"), ns, "web")
	if got := links(tree); slices.ContainsFunc(got, func(l string) bool { return strings.Contains(l, "web-tls") }) || tree.Neighbours.Hidden != 1 {
		t.Errorf("without the right to Secrets: %q and %d hidden", got, tree.Neighbours.Hidden)
	}
	if got := links(treeOf(t, reader, c, core("pods"), ns, "web")); slices.Contains(got, "NetPolicy/web is for Pod/web") {
		t.Errorf("without the right to NetPolicies: %q", got)
	}
}

func TestFilesOfEdgesAreChecked(t *testing.T) {
	entry := func(expression string) string {
		return "edges:\n- from: pods\n  to: nodes\n  name: test\n  expression: " + expression
	}
	for text, want := range map[string]string{
		"":                          "f.yaml: it is empty",
		"[":                         "f.yaml: yaml: line 1",
		"- from: a":                 "f.yaml:1:1: the file must be a mapping with edges",
		"{}":                        `f.yaml:1:1: the list "edges" is missing`,
		"edge: []":                  `f.yaml:1:1: the file has an unknown field "edge"`,
		"edges: 7":                  `f.yaml:1:8: "edges" must be a list`,
		"edges: []\n---\nedges: []": "f.yaml: it must have one YAML document",
		"edges: [7]":                "f.yaml:1:9: edge 1 must be a mapping",
		"edges:\n- from: a\n  from: b\n  to: a\n  name: n\n  expression: self.a": `f.yaml:3:3: edge 1 has "from" twice`,
		"edges:\n- to: a\n  name: n\n  expression: self.a":                       "f.yaml:2:3: edge 1 has no from",
		"edges:\n- from: 7\n  to: a\n  name: n\n  expression: self.a":            "f.yaml:2:9: from of edge 1 must be text",
		entry("self.a\n  optional: maybe"):                                       "f.yaml:6:13: optional of edge 1 must be true or false",
		entry("self.a + slef.b"):                                                 "f.yaml:5:24: edge 1 (test): undeclared reference to 'slef'",
		entry("'self.a + slef.b'"):                                               "f.yaml:5:25: edge 1 (test): undeclared reference",
		entry("|\n    self.a +\n      slef.b"):                                   "f.yaml:7:7: edge 1 (test): undeclared reference",
		entry("self.a +"):                                                        "f.yaml:5:23: edge 1 (test): Syntax error",
		entry("1 + 2"):                                                           "f.yaml:5:15: edge 1 (test): the expression gives int; it must give a name",
		entry("self.a == 1"):                                                     "the expression gives bool",
		entry("self.items.map(x, 7)"):                                            "the expression gives list(int)",
		entry(`"` + strings.Repeat("a", maxExpression+1) + `"`):                  "expression of edge 1 is longer than",
		"edges:" + strings.Repeat("\n- {}", maxEdges+1):                          "101 edges; at most 100 are allowed",
		"edges:" + strings.Repeat("\n- {}", maxEdges):                            "and 390 more",
		strings.Repeat(" ", maxEdgeFile+1):                                       "it has more than",
	} {
		if _, err := ParseEdges("f.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v, not %q", text, err, want)
		}
	}
}

func TestExpressionsAreBounded(t *testing.T) {
	long := `{"metadata":{"name":"a"},"list":[` + strings.TrimSuffix(strings.Repeat(`"x",`, 1000), ",") + `]}`
	self, err := NewObject([]byte(long)).self()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"self.list.all(a, self.list.all(b, self.list.all(c, a != b || b != c || a == c))) ? 'a' : 'b'": "cost limit exceeded",
		"self.list":          "more than 100 names",
		"self.metadata.name": "",
		"self.none":          "no such key",
		"self.list[5000]":    "index out of bounds",
		"[1, self.list][0]":  "it gives neither",
		"dyn(7)":             "it gives neither",
	} {
		e, wrong := compile(text)
		if wrong != nil {
			if want != "it gives neither" {
				t.Error(text, wrong)
			}
			continue
		}
		budget := uint64(maxTotalCost)
		names, _, err := e.evaluate(t.Context(), self, &budget)
		if want == "" && err == nil && len(names) == 1 && names[0] == "a" && budget < maxTotalCost {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || len(names) > maxNamed {
			t.Errorf("%s: %v, %d names", text, err, len(names))
		}
	}
	e, _ := compile("self.metadata.name")
	budget := uint64(maxTotalCost)
	for n := 0; ; n++ {
		if _, _, err := e.evaluate(t.Context(), self, &budget); err == errCostly {
			break
		} else if err != nil || n > maxTotalCost {
			t.Fatal(n, err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	e, _ = compile("self.list.all(a, self.list.all(b, a == b)) ? 'a' : 'b'")
	budget = maxTotalCost
	if _, _, err := e.evaluate(cancelled, self, &budget); err == nil {
		t.Error("an evaluation goes on though nobody waits for it")
	}
}

// FuzzEdges checks that no file makes the parser fail, nor an expression of one.
func FuzzEdges(f *testing.F) {
	f.Add([]byte(ownEdges))
	f.Add([]byte("edges:\n- &a {from: pods, to: nodes, name: n, expression: 'self.metadata.name'}\n- *a"))
	f.Add([]byte("edges: [{from: a, to: b, name: c, expression: \"{'matchLabels': self.metadata.labels}\"}]"))
	f.Add([]byte("edges: [{from: a, to: b, name: c, expression: >-\n  [optional.none(), 'a/b/c'][1]}]"))
	object := NewObject([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","namespace":"b","labels":{"c":"d"}},"data":{"e":"Zg=="}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		edges, err := ParseEdges("f.yaml", text)
		if err != nil {
			return
		}
		for _, e := range edges.edges {
			self, err := object.self()
			if err != nil {
				t.Fatal(err)
			}
			budget := uint64(maxTotalCost)
			names, _, _ := e.compiled.evaluate(t.Context(), self, &budget)
			for _, name := range names {
				_, _, _ = splitName(name, "b", true)
			}
		}
	})
}
