package server_test

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// deployed is a cluster with deploy/rbac.yaml applied.
type deployed struct {
	*testing.T
	cp     *controlplane.Cluster
	admin  *api
	config *rest.Config // of the mirror's account

	mu   sync.Mutex
	used sets.Set[string] // the rights that the account has made use of, as rightsOf writes them
}

func deploy(t *testing.T) *deployed {
	t.Helper()
	d := &deployed{T: t, cp: controlplane.Start(t), used: sets.New[string]()}
	d.apply()
	d.admin = newAPI(t, d.cp.AdminConfig())
	d.config = rest.CopyConfig(d.cp.NobodyConfig())
	d.config.BearerToken = d.admin.do("POST", "/api/v1/namespaces/tidings/serviceaccounts/tidings/token", `{"spec":{}}`)["status"].(map[string]any)["token"].(string)
	d.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return recorder{d, next} })
	return d
}

func (d *deployed) apply() {
	d.Helper()
	if out, err := d.cp.KubectlCommand(d.Context(), d.cp.Kubeconfig(controlplane.Admin), "apply", "-f", "../../../../deploy/rbac.yaml").CombinedOutput(); err != nil {
		d.Fatalf("%v: %s", err, out)
	}
}

// recorder records the right that each request needs.
type recorder struct {
	*deployed
	next http.RoundTripper
}

func (r recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := r.next.RoundTrip(req)
	if err != nil || resp.StatusCode == http.StatusForbidden {
		return resp, err
	}
	resolver := request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	if info, err := resolver.NewRequestInfo(req); err == nil && info.IsResourceRequest {
		r.mu.Lock()
		defer r.mu.Unlock()
		name := ""
		if info.Namespace == "kube-system" {
			name = info.Name
		}
		r.used.Insert(right(info.Verb, info.APIGroup, info.Resource, name), right(info.Verb, info.APIGroup, info.Resource, ""), right(info.Verb, info.APIGroup, "*", ""))
	}
	return resp, nil
}

func right(verb, group, resource, name string) string {
	return strings.Join([]string{verb, group, resource, name}, " ")
}

// rightsOf expands rules to single rights.
func rightsOf(rules []rbacv1.PolicyRule) sets.Set[string] {
	out := sets.New[string]()
	for _, r := range rules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					for _, name := range append([]string{}, r.ResourceNames...) {
						out.Insert(right(verb, group, resource, name))
					}
					if len(r.ResourceNames) == 0 {
						out.Insert(right(verb, group, resource, ""))
					}
				}
			}
		}
	}
	return out
}

// written returns the rules in the file, by the name of their role.
func (d *deployed) written() map[string][]rbacv1.PolicyRule {
	d.Helper()
	file, err := os.ReadFile("../../../../deploy/rbac.yaml")
	if err != nil {
		d.Fatal(err)
	}
	out := map[string][]rbacv1.PolicyRule{
		// Of Kubernetes; noOthers sees to it that this is all it holds.
		"system:auth-delegator": {
			{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}},
			{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}},
		},
	}
	for _, doc := range bytes.Split(file, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err == nil && (role.Kind == "ClusterRole" || role.Kind == "Role") {
			out[role.Name] = role.Rules
		}
	}
	delete(out, "tidings-secrets") // bound to nobody
	return out
}

// mirror serves with the account's rights.
func (d *deployed) mirror(t testing.TB, resources ...string) (*rig, http.Handler) {
	t.Helper()
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	r := serve(t, nil, d.config, options{server: server.Options{Gate: gate}, mirror: mirror.Options{Resources: resources}})
	s, err := server.New(r.mirror, server.Options{Gate: gate})
	r.must(err)
	t.Cleanup(s.Close)
	return r, s.Handler()
}

// withCertificate sends a request with a certificate of an unknown authority.
func (d *deployed) withCertificate(h http.Handler) int {
	d.Helper()
	chain, _, err := certutil.GenerateSelfSignedCertKey("somebody", nil, nil)
	if err != nil {
		d.Fatal(err)
	}
	certs, err := certutil.ParseCertsPEM(chain)
	if err != nil {
		d.Fatal(err)
	}
	req := httptest.NewRequestWithContext(d.Context(), http.MethodGet, "/core/v1/pods", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certs[0]}}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w.Code
}

// The rights of deploy/rbac.yaml are sufficient and minimal.
func TestTheRightsThatAreDeployed(t *testing.T) {
	d := deploy(t)
	t.Run("enough for a mirror of everything", d.sufficient)
	t.Run("no others", d.noOthers)
	t.Run("each missed", d.eachNeeded)
}

// sufficient uses all rights.
func (d *deployed) sufficient(t *testing.T) {
	r, h := d.mirror(t, mirror.Everything, "secrets")
	eventually(t, "the rights have come into force", func() bool {
		return r.as("admin-token", "/pods").code == http.StatusOK
	})
	c, err := r.mirror.Cluster("")
	r.must(err)
	resources, err := c.Resources(t.Context())
	r.must(err)
	if len(resources) < 40 {
		t.Errorf("only %d resources: %v", len(resources), resources)
	}
	for _, res := range resources {
		want := http.StatusOK
		if res.String() == "secrets" {
			want = http.StatusForbidden
		}
		if a := r.as("admin-token", "/"+res.Versioned()); a.code != want || want != 200 && !strings.Contains(a.Error, "system:serviceaccount:tidings:tidings") {
			t.Errorf("%s: %d %s", res, a.code, a.body)
		}
		if a := r.as("nobody-token", "/"+res.Versioned()); a.code != http.StatusForbidden || strings.Contains(a.Error, "tidings") {
			t.Errorf("%s, for nobody: %d %s", res, a.code, a.body)
		}
		one := fmt.Sprintf("/%s/%s/%s/", cmp.Or(res.Group, "core"), res.Version, res.Resource)
		if res.Namespaced {
			one += "default/"
		}
		if a := r.as("admin-token", "/"+res.Versioned()+"?source=live&limit=1"); a.code != want {
			t.Errorf("%s, live: %d %s", res, a.code, a.body)
		}
		if a := r.as("admin-token", one+"none?source=live"); want == 200 && a.code != http.StatusNotFound {
			t.Errorf("%snone: %d %s", one, a.code, a.body)
		}
	}
	if a := r.as("namespaced-user-token", "/core/v1/pods/team-a?source=live"); a.code != http.StatusOK {
		t.Errorf("%d %s", a.code, a.body)
	}
	if code := d.withCertificate(h); code != http.StatusUnauthorized {
		t.Errorf("with a certificate: %d", code)
	}
	// Not more: each of them has been made use of.
	for role, rules := range d.written() {
		d.mu.Lock()
		if unused := rightsOf(rules).Difference(d.used); unused.Len() > 0 {
			t.Errorf("%s: nobody needs the rights to %q", role, sets.List(unused))
		}
		d.mu.Unlock()
	}
}

// noOthers checks that the account has the rights in the file, and besides only those
// of every account.
func (d *deployed) noOthers(t *testing.T) {
	account := newAPI(t, d.config)
	always := rightsOf([]rbacv1.PolicyRule{ // system:basic-user
		{Verbs: []string{"create"}, APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
		{Verbs: []string{"create"}, APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
	})
	for _, namespace := range []string{"default", "kube-system", "tidings"} {
		want := always.Clone()
		for role, rules := range d.written() {
			if role != "tidings-authentication-reader" || namespace == "kube-system" {
				want = want.Union(rightsOf(rules))
			}
		}
		var got sets.Set[string]
		ask := func() bool {
			review := account.do("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", fmt.Sprintf(`{"spec":{"namespace":%q}}`, namespace))
			var rules []rbacv1.PolicyRule
			for _, r := range review["status"].(map[string]any)["resourceRules"].([]any) {
				raw, _ := yaml.Marshal(r)
				var rule rbacv1.PolicyRule
				if err := yaml.Unmarshal(raw, &rule); err != nil {
					t.Fatal(err)
				}
				rules = append(rules, rule)
			}
			got = rightsOf(rules)
			return got.Equal(want)
		}
		for deadline := time.Now().Add(10 * time.Second); !ask() && time.Now().Before(deadline); {
			time.Sleep(20 * time.Millisecond) // until the rights have come into force
		}
		if !got.Equal(want) {
			t.Errorf("in %s it may also %q, and may not %q", namespace, sets.List(got.Difference(want)), sets.List(want.Difference(got)))
		}
	}
}

// eachNeeded checks that something fails without any one of the rules.
func (d *deployed) eachNeeded(t *testing.T) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
	rules := d.written()["tidings"]
	without := func(i int) string {
		body, err := yaml.Marshal(map[string]any{"rules": slices.Delete(slices.Clone(rules), i, i+1)})
		if err != nil {
			t.Fatal(err)
		}
		body, err = yaml.YAMLToJSON(body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	removals := map[string]func(){
		"system:auth-delegator": func() {
			d.admin.do("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tidings-auth-delegator", "")
		},
		"tidings-authentication-reader": func() {
			d.admin.do("DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/rolebindings/tidings-authentication-reader", "")
		},
	}
	for i := range rules {
		removals[fmt.Sprintf("rule %d", i)] = func() { d.admin.do("PATCH", roles+"tidings", without(i)) }
	}
	wants := map[string]string{
		"system:auth-delegator": "tokens", "tidings-authentication-reader": "certificates", "rule 0": "/core/v1/pods", "rule 1": "/apps/v1/deployments",
	}
	for _, what := range slices.Sorted(maps.Keys(removals)) {
		t.Run(what, func(t *testing.T) {
			missed := func() []string { return d.missed(t) }
			if what == "tidings-authentication-reader" {
				// The right to read all config maps includes that one.
				d.admin.do("PATCH", roles+"tidings", `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list","watch"]},{"apiGroups":["apps"],"resources":["*"],"verbs":["get","list","watch"]}]}`)
			}
			eventually(t, "everything works", func() bool { return len(missed()) == 0 })
			removals[what]()
			defer d.apply()
			eventually(t, "it is missed for "+wants[what], func() bool { return slices.Contains(missed(), wants[what]) })
		})
	}
}

// missed returns what a new mirror cannot do that has no results cached yet.
func (d *deployed) missed(t *testing.T) (out []string) {
	t.Run("try", func(t *testing.T) {
		r, h := d.mirror(t)
		for _, path := range []string{"/core/v1/pods", "/apps/v1/deployments"} {
			switch a := r.as("admin-token", path); a.code {
			case http.StatusOK:
			case http.StatusForbidden:
				out = append(out, path)
			default:
				out = append(out, "tokens")
			}
		}
		if code := d.withCertificate(h); code != http.StatusUnauthorized {
			out = append(out, "certificates")
		}
	})
	return out
}
