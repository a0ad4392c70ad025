package discovery_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/discovery"
	"github.com/tidings-io/tidings/internal/controlplane"
)

var resource = schema.GroupResource{Resource: "clusters"}

// behind serves discovery of the real cluster, at the root and at a prefix.
func behind(t *testing.T, everything bool) (*controlplane.Cluster, *httptest.Server) {
	cp := controlplane.Shared(t)
	c, err := cluster.New("real", cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h := discovery.New(discovery.Options{Everything: everything, Cluster: func(context.Context) (*cluster.Cluster, error) { return c, nil }})
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/clusters/real/", http.StripPrefix("/clusters/real", h))
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return cp, s
}

const (
	aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	beta       = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	protobuf   = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// If nothing is left out, all answers are those of the API server.
func TestEverythingIsUpstreams(t *testing.T) {
	cp, s := behind(t, true)
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	method := http.MethodGet
	ask := func(base, path string, headers map[string]string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	compare := func(path string, headers map[string]string) {
		want, wantBody := ask(cp.URL(), path, headers)
		for _, prefix := range []string{"", "/clusters/real"} {
			got, gotBody := ask(s.URL+prefix, path, headers)
			if got.StatusCode != want.StatusCode || gotBody != wantBody {
				t.Errorf("%s %v: %s and %d bytes, want %s and %d", path, headers, got.Status, len(gotBody), want.Status, len(wantBody))
			}
			names := []string{"Content-Type", "Etag", "Cache-Control"}
			if want.StatusCode != http.StatusOK {
				names = append(names, "Vary")
			}
			for _, name := range names {
				if got.Header.Get(name) != want.Header.Get(name) {
					t.Errorf("%s %v: %s %q, want %q", path, headers, name, got.Header.Get(name), want.Header.Get(name))
				}
			}
			location := want.Header.Get("Location")
			if location != "" {
				location = prefix + location
			}
			if got.Header.Get("Location") != location {
				t.Errorf("%s: to %q, want %q", path, got.Header.Get("Location"), location)
			}
			if etag := want.Header.Get("Etag"); etag != "" && want.StatusCode == http.StatusOK {
				with := map[string]string{"If-None-Match": etag}
				for k, v := range headers {
					with[k] = v
				}
				if again, body := ask(s.URL+prefix, path, with); again.StatusCode != http.StatusNotModified || body != "" {
					t.Errorf("%s %v: %s again", path, headers, again.Status)
				}
			}
		}
	}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/apis/nothing", "/apis/apps/v7", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/apps/v1?hash=old", "/openapi/v3/nothing", "/version"} {
		for _, accept := range []string{"", "application/json", "*/*", aggregated + "," + beta + ",application/json", beta, protobuf, "application/vnd.kubernetes.protobuf", "application/yaml", "text/html",
			"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"} {
			headers := map[string]string{}
			if accept != "" {
				headers["Accept"] = accept
			}
			compare(path, headers)
		}
	}
	// In all spellings, with all refusals.
	rnd := rand.New(rand.NewPCG(1, 2))
	clauses := []string{
		"application/json", "application/json", "*/*", "application/*", "text/html", "application/yaml", "application/vnd.kubernetes.protobuf", "application/xml", "application/cbor", "APPLICATION/JSON", "json", "",
		aggregated, beta, protobuf, aggregated + ";profile=nopeer", "application/yaml;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;v=v1;g=meta.k8s.io;as=Table", "application/json;pretty=1", "application/json; charset=utf-8",
		"*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
		"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf",
	}
	for i := range 24 {
		var accept []string
		for range 1 + rnd.IntN(4) {
			clause := clauses[rnd.IntN(len(clauses))]
			if rnd.IntN(3) == 0 {
				clause += fmt.Sprintf(";q=0.%d", rnd.IntN(10))
			}
			accept = append(accept, clause)
		}
		paths := []string{"/api", "/apis", "/apis/apps", "/api/v1", "/version"}
		if i%8 == 0 { // which is long
			paths = append(paths, "/openapi/v2", "/openapi/v3/apis/apps/v1")
		}
		for _, path := range paths {
			compare(path, map[string]string{"Accept": strings.Join(accept, ",")})
		}
	}
	method = http.MethodHead
	for _, path := range []string{"/api", "/apis", "/api/v1", "/api/v9", "/apis/apps", "/apis/apps/v1", "/apis/nothing", "/apis/nothing/v1", "/openapi/v2", "/openapi/v3", "/openapi/v3/", "/openapi/v3/apis/apps/v1", "/version"} {
		for _, accept := range []string{"application/json", "text/html"} {
			compare(path, map[string]string{"Accept": accept})
		}
	}
}

// What a mirror cannot serve is left out, in both forms, and clients work with it.
func TestReducedDiscovery(t *testing.T) {
	_, s := behind(t, false)
	for _, form := range []string{"aggregated", "legacy"} {
		t.Run(form, func(t *testing.T) {
			client, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: s.URL + "/clusters/real"})
			if err != nil {
				t.Fatal(err)
			}
			client.UseLegacyDiscovery = form == "legacy"
			_, lists, err := client.ServerGroupsAndResources()
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]metav1.APIResource{}
			for _, list := range lists {
				for _, r := range list.APIResources {
					all[list.GroupVersion+"/"+r.Name] = r
					mirrored := slices.Equal(r.Verbs, []string{"get", "list", "watch"})
					if review := strings.HasPrefix(r.Name, "selfsubject"); !mirrored && !review || strings.Contains(r.Name, "/") {
						t.Errorf("%s %s: %v", list.GroupVersion, r.Name, r.Verbs)
					}
				}
			}
			if pods := all["v1/pods"]; !slices.Equal(pods.ShortNames, []string{"po"}) || !slices.Equal(pods.Categories, []string{"all"}) || !pods.Namespaced || pods.Kind != "Pod" {
				t.Errorf("%+v", pods)
			}
			for _, review := range []string{"authorization.k8s.io/v1/selfsubjectaccessreviews", "authentication.k8s.io/v1/selfsubjectreviews"} {
				if r := all[review]; !slices.Equal(r.Verbs, []string{"create"}) {
					t.Errorf("%s: %v", review, r.Verbs)
				}
			}
			if _, ok := all["authentication.k8s.io/v1/tokenreviews"]; ok || len(all) < 60 {
				t.Errorf("%d resources", len(all))
			}
		})
	}
	// The reduced answer has an entity tag of its own.
	resp, err := http.Get(s.URL + "/version")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for _, accept := range []string{aggregated, protobuf} {
		var etag string
		for _, want := range []int{http.StatusOK, http.StatusNotModified} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/apis", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", accept)
			req.Header.Set("If-None-Match", etag)
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if etag = resp.Header.Get("Etag"); resp.StatusCode != want || etag == "" || want == http.StatusOK && resp.Header.Get("Content-Type") != accept {
				t.Errorf("%s: %s %v", accept, resp.Status, resp.Header)
			}
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestKubectl(t *testing.T) {
	cp, s := behind(t, false)
	for _, prefix := range []string{"", "/clusters/real"} {
		kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
		if err := controlplane.WriteKubeconfig(kubeconfig, &rest.Config{Host: s.URL + prefix}); err != nil {
			t.Fatal(err)
		}
		for command, want := range map[string]string{
			"api-resources --api-group=apps":   "deployments           deploy       apps/v1      true         Deployment",
			"api-resources -o wide":            "get,list,watch",
			"api-versions":                     "networking.k8s.io/v1",
			"explain deployment.spec.replicas": "FIELD: replicas <integer>",
			"explain pods --api-version=v1":    "KIND:       Pod",
			"version":                          "Server Version: v1.36",
			"get --raw /openapi/v3":            `"serverRelativeURL":"/openapi/v3/`,
		} {
			cmd := exec.CommandContext(t.Context(), filepath.Join(cp.BinDir(), "kubectl"), strings.Fields(command)...)
			cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("kubectl %s: %v\n%s", command, err, out)
			}
		}
	}
}
