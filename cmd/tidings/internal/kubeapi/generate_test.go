package kubeapi_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// population has the objects in the cluster, and changes them.
type population struct {
	testing.TB
	admin *api

	mu    sync.Mutex
	alive []string // paths of objects
}

// thing is a resource with objects to create.
type thing struct {
	prefix     string // /api/v1
	resource   string
	namespaced bool
	body       func(rnd *rand.Rand, name string) string
	fields     []string // to select by
	untyped    bool     // there is no Go type of it in client-go
}

func (k thing) path(namespace, name string) string {
	p := k.prefix
	if k.namespaced && namespace != "" {
		p += "/namespaces/" + namespace
	}
	p += "/" + k.resource
	if name != "" {
		p += "/" + name
	}
	return p
}

const example = "/apis/kubeapi.example.com/v1"

var (
	spaces = []string{"default", "kubeapi-a", controlplane.Namespace}
	labels = []string{"red", "green", "blue"}
)

func metaOf(rnd *rand.Rand, name string) string {
	return fmt.Sprintf(`"metadata":{"name":%q,"labels":{"app":%q,"n":"%d"},"annotations":{"note":"<é & \"quoted\" \u2028>","i":"%d"}}`, name, labels[rnd.IntN(len(labels))], rnd.IntN(4), rnd.Int())
}

var things = []thing{
	{prefix: "/api/v1", resource: "configmaps", namespaced: true, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"data":{"k":"%d"},"binaryData":{"b":"AAEC"}}`, metaOf(r, n), r.Int())
	}},
	{prefix: "/api/v1", resource: "secrets", namespaced: true, fields: []string{"type=Opaque", "type!=Opaque"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"stringData":{"k":"%d"}}`, metaOf(r, n), r.Int())
	}},
	{prefix: "/api/v1", resource: "pods", namespaced: true, fields: []string{"spec.nodeName=", "status.phase=Pending", "status.phase!=Running", "spec.restartPolicy=Always", "status.podIP=", "spec.hostNetwork=false"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"containers":[{"name":"c","image":"i:%d","resources":{"requests":{"cpu":"100m","memory":"0.5Gi"}},"env":[{"name":"A","value":"<b>"}]}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"operator":"Exists"}]}}`, metaOf(r, n), r.IntN(100))
	}},
	{prefix: "/api/v1", resource: "services", namespaced: true, fields: []string{"spec.type=ClusterIP", "spec.clusterIP=None"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"clusterIP":"None","ports":[{"port":80,"targetPort":"http"}],"selector":{"a":"b"}}}`, metaOf(r, n))
	}},
	{prefix: "/api/v1", resource: "nodes", fields: []string{"spec.unschedulable=false"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"podCIDR":"10.1.%d.0/24"}}`, metaOf(r, n), r.IntN(200))
	}},
	{prefix: "/apis/apps/v1", resource: "deployments", namespaced: true, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"replicas":%d,"selector":{"matchLabels":{"x":"y"}},"template":{"metadata":{"labels":{"x":"y"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, metaOf(r, n), r.IntN(5))
	}},
	{prefix: "/apis/batch/v1", resource: "jobs", namespaced: true, fields: []string{"status.successful=0"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, metaOf(r, n))
	}},
	{prefix: "/apis/coordination.k8s.io/v1", resource: "leases", namespaced: true, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"spec":{"holderIdentity":"%d","renewTime":"2026-01-02T03:04:05.678901Z"}}`, metaOf(r, n), r.Int())
	}},
	{prefix: "/apis/rbac.authorization.k8s.io/v1", resource: "clusterroles", body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{%s,"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`, metaOf(r, n))
	}},
	{prefix: example, resource: "gadgets", namespaced: true, fields: []string{"spec.color=red", "spec.size=3", "spec.color!=red"}, body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{"kind":"Gadget","apiVersion":"kubeapi.example.com/v1",%s,"spec":{"color":%q,"size":%d,"ratio":1.50,"big":123456789012345678,"z":null,"list":[1,2.0,"x"]}}`, metaOf(r, n), labels[r.IntN(3)], r.IntN(4))
	}},
	{prefix: example, resource: "sprockets", body: func(r *rand.Rand, n string) string {
		return fmt.Sprintf(`{"kind":"Sprocket","apiVersion":"kubeapi.example.com/v1",%s,"spec":{"teeth":%d}}`, metaOf(r, n), r.IntN(100))
	}},
	{prefix: "/apis/apiextensions.k8s.io/v1", resource: "customresourcedefinitions", untyped: true},
	{prefix: "/api/v1", resource: "namespaces", fields: []string{"status.phase=Active"}},
	{prefix: "/apis/apiregistration.k8s.io/v1", resource: "apiservices", untyped: true},
	{prefix: "/apis/flowcontrol.apiserver.k8s.io/v1", resource: "flowschemas"},
	{prefix: "/apis/scheduling.k8s.io/v1", resource: "priorityclasses"},
}

func definition(plural, kind, scope string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[1]s.kubeapi.example.com"},"spec":{"group":"kubeapi.example.com","scope":%[3]q,"names":{"plural":%[1]q,"kind":%[2]q},
		"versions":[{"name":"v1","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.color"},{"jsonPath":".spec.size"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
		"properties":{"color":{"type":"string"},"size":{"type":"integer"}}}}}}}]}}`, plural, kind, scope)
}

// populate fills a cluster.
func populate(tb testing.TB, admin *api) *population {
	tb.Helper()
	p := &population{TB: tb, admin: admin}
	for _, name := range spaces[1:] {
		_, _ = admin.write("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name)) // or it is there
		// There is no controller to create it, and pods are not admitted without it.
		_, _ = admin.write("POST", "/api/v1/namespaces/"+name+"/serviceaccounts", `{"metadata":{"name":"default"}}`)
	}
	_, _ = admin.write("POST", "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"default"}}`)
	admin.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("gadgets", "Gadget", "Namespaced"))
	admin.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("sprockets", "Sprocket", "Cluster"))
	for _, resource := range []string{"gadgets", "sprockets"} {
		eventually(tb, resource+" are served", func() bool { return admin.get(example+"/"+resource).code == http.StatusOK })
	}
	rnd := rand.New(rand.NewPCG(11, 12))
	for _, k := range things {
		for i := range 14 {
			if k.body != nil {
				p.create(rnd, k, i)
			}
		}
	}
	return p
}

func (p *population) create(rnd *rand.Rand, k thing, i int) {
	namespace := ""
	if k.namespaced {
		namespace = spaces[rnd.IntN(len(spaces))]
	}
	name := fmt.Sprintf("%s-%d", strings.TrimSuffix(k.resource, "s"), i)
	if _, err := p.admin.write("POST", k.path(namespace, ""), k.body(rnd, name)); err == nil {
		p.mu.Lock()
		p.alive = append(p.alive, k.path(namespace, name))
		p.mu.Unlock()
	}
}

// live changes objects until ctx ends. It returns after the last change.
func (p *population) live(ctx context.Context, rnd *rand.Rand) {
	for i := 100; ctx.Err() == nil; i++ {
		k := things[rnd.IntN(len(things))]
		path := p.some(rnd)
		switch c := rnd.IntN(10); {
		case k.body == nil || path == "":
		case c < 2:
			p.create(rnd, k, i)
		case c < 4:
			if _, err := p.admin.write("DELETE", path, `{"gracePeriodSeconds":0}`); err == nil {
				p.mu.Lock()
				p.alive = slices.DeleteFunc(p.alive, func(have string) bool { return have == path })
				p.mu.Unlock()
			}
		default:
			_, _ = p.admin.write("PATCH", path, fmt.Sprintf(`{"metadata":{"labels":{"app":%q},"annotations":{"i":"%d"}}}`, labels[rnd.IntN(3)], rnd.Int()))
		}
	}
}

// some returns the path of an object that exists, or existed shortly before.
func (p *population) some(rnd *rand.Rand) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.alive) == 0 {
		return ""
	}
	return p.alive[rnd.IntN(len(p.alive))]
}

func pick[T any](rnd *rand.Rand, from ...T) T { return from[rnd.IntN(len(from))] }

// chance is true once in n times.
func chance(rnd *rand.Rand, n int) bool { return rnd.IntN(n) == 0 }

const (
	partialList = ";as=PartialObjectMetadataList;g=meta.k8s.io;v="
	partialOne  = ";as=PartialObjectMetadata;g=meta.k8s.io;v="
	protobuf    = "application/vnd.kubernetes.protobuf"
)

// accept are Accept headers of clients.
func accept(rnd *rand.Rand, list bool) string {
	if chance(rnd, 2) {
		return pick(rnd, "", "application/json")
	}
	right, wrong := partialOne, partialList
	if list {
		right, wrong = wrong, right
	}
	return pick(rnd, "*/*", "application/yaml", protobuf, protobuf+",application/json",
		"application/json"+right+"v1", "application/json"+right+"v1beta1", protobuf+right+"v1", protobuf+right+"v1,"+protobuf+",application/json",
		"application/yaml"+right+"v1", "application/json"+right+"v1,application/json", "application/json"+wrong+"v1", protobuf+wrong+"v1",
		"application/json"+right+"v2", "application/json"+right+"v2,application/json", "application/json;as=Sheet;g=meta.k8s.io;v=v1", "application/json;pretty=1",
		"application/cbor", "application/cbor,application/json", "text/html", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/*", "nonsense", "application/json;q=0.1,"+protobuf+";q=0.9")
}

// generate makes a random request, with versions and tokens from earlier answers.
func generate(rnd *rand.Rand, p *population, seen *memory) ask {
	q := url.Values{}
	out := ask{header: http.Header{}}
	k := things[rnd.IntN(len(things))]
	namespace := ""
	if k.namespaced && chance(rnd, 2) {
		namespace = pick(rnd, append(spaces, "nowhere")...)
	}
	list := !chance(rnd, 3)
	if list {
		out.path = k.path(namespace, "")
	} else if out.path = p.some(rnd); out.path == "" || chance(rnd, 6) {
		if namespace == "" && k.namespaced {
			namespace = "default"
		}
		out.path = k.path(namespace, pick(rnd, "nothing", "Not_A_Name", "x.y", "%20"))
	}
	if out.accept = accept(rnd, list); k.untyped { // a known difference
		out.accept = strings.ReplaceAll(out.accept, protobuf+";q", "application/yaml;q")
		out.accept = regexp.MustCompile(protobuf+`(,|$)`).ReplaceAllString(out.accept, "application/yaml$1")
	}
	if chance(rnd, 25) { // what means nothing
		out.path = pick(rnd, "/api/v1/nonsense", "/api/v1/namespaces/default/nonsense/x", "/api/v9/pods", "/apis/apps/v1/nonsense", "/apis/apps/v9/deployments", "/apis/nonsense/v1/things",
			example+"/nonsense", "/apis/kubeapi.example.com/v9/gadgets", "/api/v1/namespaces/default/nodes", "/api/v1/namespaces/default/nodes/x", "/api/v1/pods/x", example+"/gadgets/x", example+"/namespaces/default/sprockets",
			"/api/v1/namespaces/default/", "/api/v1/configmaps/")
	}
	if chance(rnd, 8) {
		q.Set("pretty", pick(rnd, "1", "true", "false", "0", "nonsense"))
	}
	if chance(rnd, 40) {
		out.header.Set("User-Agent", pick(rnd, "curl/8", "Mozilla/5.0 (X11)"))
	}
	if chance(rnd, 6) {
		out.header.Set("Accept-Encoding", pick(rnd, "gzip", "identity", "deflate", "br, gzip;q=0.5"))
	}
	if !list {
		if chance(rnd, 4) {
			q.Set("resourceVersion", pick(rnd, "0", "1", "abc", "-1", "", seen.version(rnd)))
		}
		out.query = q
		return out
	}
	if chance(rnd, 3) {
		q.Set("labelSelector", pick(rnd, "app=red", "app!=red", "app in (red,blue)", "app notin (red)", "app", "!app", "n>1", "n<3,app=blue", "app==green", "nonsense in ()", "((", "a=b=c", "app=red,app=blue", ",", strings.Repeat("x", 70)))
	}
	if chance(rnd, 4) {
		q.Set("fieldSelector", pick(rnd, append(k.fields, "metadata.name=configmap-1", "metadata.namespace=default", "metadata.namespace!=default", "metadata.name!=pod-2,metadata.namespace=kubeapi-a",
			"spec.nonsense=1", "((", "metadata.name==job-3", "metadata.name=a,metadata.name=b", "metadata.uid=1", "metadata.name=", "a")...))
	}
	if chance(rnd, 3) {
		q.Set("limit", pick(rnd, "1", "2", "5", "500", "0", "-1", "abc", ""))
	}
	switch rnd.IntN(12) {
	case 0:
		q.Set("resourceVersion", "0")
	case 1, 2:
		q.Set("resourceVersion", seen.version(rnd))
	case 3:
		q.Set("resourceVersion", seen.version(rnd))
		q.Set("resourceVersionMatch", "Exact")
	case 4:
		q.Set("resourceVersion", seen.version(rnd))
		q.Set("resourceVersionMatch", "NotOlderThan")
	case 5:
		q.Set("resourceVersion", pick(rnd, "", "0", "1", "abc", "-1", "1.5", "99999999999999999999999", seen.version(rnd)))
		q.Set("resourceVersionMatch", pick(rnd, "", "Exact", "NotOlderThan", "nonsense"))
	case 6, 7:
		if prior := seen.page(rnd); prior != nil {
			again := *prior
			if !strings.Contains(again.path, "apiservices") && !strings.Contains(again.path, "customresourcedefinitions") {
				again.accept = out.accept
			}
			again.query = url.Values{}
			for name, values := range prior.query {
				again.query[name] = values
			}
			if chance(rnd, 10) {
				again.query.Set("resourceVersion", pick(rnd, "0", "5"))
			}
			return again
		}
	case 8:
		q.Set("continue", pick(rnd, "nonsense", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIifQ",
			"eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiL2EifQ", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vYSJ9", "eyJ2IjoibWV0YS5rOHMuaW8vdjIiLCJydiI6MSwic3RhcnQiOiIvYSJ9"))
	}
	if strings.Contains(q.Get("fieldSelector"), "metadata.namespace=") {
		// A known difference: for such a list, kube-apiserver (1.36) returns tokens
		// that it then treats as those of all namespaces, and loses objects.
		q.Del("limit")
	}
	if chance(rnd, 30) {
		q.Set(pick(rnd, "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents", "nonsense", "includeObject"), pick(rnd, "0", "false", "abc"))
	}
	out.query = q
	return out
}

// memory has values from earlier answers.
type memory struct {
	versions []string
	pages    []ask
}

func (m *memory) version(rnd *rand.Rand) string {
	if len(m.versions) == 0 {
		return "1"
	}
	recent := m.versions[max(0, len(m.versions)-200):]
	return recent[rnd.IntN(len(recent))]
}

func (m *memory) page(rnd *rand.Rand) *ask {
	if len(m.pages) == 0 {
		return nil
	}
	recent := m.pages[max(0, len(m.pages)-30):]
	return &recent[rnd.IntN(len(recent))]
}
