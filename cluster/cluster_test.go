package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// both runs a test against a server with aggregated discovery and one without.
func both(t *testing.T, test func(t *testing.T, s *apiServer)) {
	for name, legacy := range map[string]bool{"aggregated": false, "legacy": true} {
		t.Run(name, func(t *testing.T) {
			s := ordinary()
			s.legacyOnly = legacy
			test(t, s)
		})
	}
}

func TestResolveTakesWhatKubectlTakes(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		c := connect(t, s)
		for arg, want := range map[string]string{
			"pods": "pods.v1", "pod": "pods.v1", "po": "pods.v1", "Pod": "pods.v1", "PODS": "pods.v1",
			"pods.v1": "pods.v1", "pods.v1.": "pods.v1", "pods.": "pods.v1", " pods ": "pods.v1",
			"deploy": "deployments.v1.apps", "Deployment": "deployments.v1.apps",
			"deployments.apps": "deployments.v1.apps", "deployments.v1.apps": "deployments.v1.apps",
			"deploy.apps": "deployments.v1.apps", "Deployment.v1.apps": "deployments.v1.apps",
			"deploy.app": "deployments.v1.apps", // a group cut short
			"events":     "events.v1", "ev": "events.v1",
			"events.events.k8s.io": "events.v1.events.k8s.io", "events.v1.events.k8s.io": "events.v1.events.k8s.io",
			"svc": "services.v1", "services.serving.knative.dev": "services.v1.serving.knative.dev", "ksvc": "services.v1.serving.knative.dev",
			"hpa": "horizontalpodautoscalers.v2.autoscaling", "hpa.v1.autoscaling": "horizontalpodautoscalers.v1.autoscaling",
			"oldies":              "oldies.v1.autoscaling", // only in a version that is not preferred
			"pods.metrics.k8s.io": "pods.v1beta1.metrics.k8s.io", "PodMetrics": "pods.v1beta1.metrics.k8s.io",
		} {
			r, err := c.Resolve(t.Context(), arg)
			if err != nil {
				t.Errorf("%q: %v", arg, err)
			} else if r.Versioned() != want {
				t.Errorf("%q is %s, want %s", arg, r.Versioned(), want)
			}
		}
		if s.asked() != 1 {
			t.Errorf("%d discoveries for names that are all there", s.asked())
		}
		for _, arg := range []string{"", ".", "..", "pods/status", "pods.v2", "pods.v1.apps", "deployments.v1beta1.apps", "nothing"} {
			var missing *cluster.NotFoundError
			if r, err := c.Resolve(t.Context(), arg); !errors.As(err, &missing) {
				t.Errorf("%q: %v, %v; want a NotFoundError", arg, r, err)
			}
		}
	})
}

func TestResourceFields(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		r, err := connect(t, s).Resolve(t.Context(), "deploy")
		if err != nil {
			t.Fatal(err)
		}
		if r.String() != "deployments.apps" || r.GVK().String() != "apps/v1, Kind=Deployment" || !r.Namespaced ||
			r.Singular != "deployment" || !r.Can("watch") || r.Can("delete") || r.GVR().Resource != "deployments" {
			t.Errorf("%+v", r)
		}
	})
}

func TestByGroupVersionAndName(t *testing.T) {
	c := connect(t, ordinary())
	hpa := schema.GroupVersionResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	if r, err := c.ResourceFor(t.Context(), hpa); err != nil || r.Version != "v2" {
		t.Errorf("%v, %v; want the preferred version", r, err)
	}
	hpa.Version = "v1"
	if r, err := c.ResourceFor(t.Context(), hpa); err != nil || r.Version != "v1" {
		t.Errorf("%v, %v; want v1", r, err)
	}
	if r, err := c.ResourceForKind(t.Context(), schema.GroupVersionKind{Group: "serving.knative.dev", Kind: "Service"}); err != nil || r.String() != "services.serving.knative.dev" {
		t.Errorf("%v, %v", r, err)
	}
	var missing *cluster.NotFoundError
	if _, err := c.ResourceForKind(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "pod"}); !errors.As(err, &missing) {
		t.Errorf("%v; an exact kind is asked for", err)
	}
	// "pods" without a group is the core group's, and never that of metrics.
	if _, err := c.ResourceFor(t.Context(), schema.GroupVersionResource{Version: "v1beta1", Resource: "pods"}); !errors.As(err, &missing) {
		t.Errorf("%v; want a NotFoundError", err)
	}
}

func TestNotFoundSuggestsResources(t *testing.T) {
	_, err := connect(t, ordinary()).Resolve(t.Context(), "deploymets")
	for _, want := range []string{`"test"`, `"deploymets"`, "deployments.apps", "tidings api-resources"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nlacks %s", err, want)
		}
	}
}

func TestResourcesCanBeListedAndWatched(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		got, err := connect(t, s).Resources(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := "pods.v1 events.v1 services.v1 deployments.v1.apps replicasets.v1.apps events.v1.events.k8s.io" +
			" horizontalpodautoscalers.v2.autoscaling oldies.v1.autoscaling services.v1.serving.knative.dev pods.v1beta1.metrics.k8s.io"
		if names(got) != want {
			t.Errorf("got  %s\nwant %s", names(got), want)
		}
	})
}

func names(list []cluster.Resource) string {
	var out []string
	for _, r := range list {
		out = append(out, r.Versioned())
	}
	return strings.Join(out, " ")
}

// A CRD that was made a moment ago is found, and a storm of questions for what
// does not exist stays a trickle at the server.
func TestNotFoundRepeatsDiscovery(t *testing.T) {
	s := ordinary()
	c := connect(t, s)
	if _, err := c.Resolve(t.Context(), "widgets"); err == nil {
		t.Fatal("widgets exist already")
	}
	s.change(func(s *apiServer) {
		s.groups = append(s.groups, group{"example.com", []version{{name: "v1", resources: []metav1.APIResource{res("widgets", "widget", "Widget")}}}})
	})
	if r, err := c.Resolve(t.Context(), "widgets"); err != nil || r.String() != "widgets.example.com" {
		t.Fatalf("%v, %v", r, err)
	}
	for range 1000 {
		if _, err := c.Resolve(t.Context(), "gadgets"); err == nil {
			t.Fatal("gadgets exist")
		}
	}
	if n := s.asked(); n > 10 {
		t.Errorf("%d discoveries for 1000 misses", n)
	}
}

// So does a storm of questions to a server that cannot be asked.
func TestFailingServerIsNotOverloaded(t *testing.T) {
	s := ordinary()
	c := connect(t, s)
	s.change(func(s *apiServer) { s.refuse = http.StatusServiceUnavailable })
	for range 1000 {
		if _, err := c.Resolve(t.Context(), "deploy"); err == nil || !strings.Contains(err.Error(), `cluster "test": discover what`) {
			t.Fatalf("an error that does not say what was done: %v", err)
		}
	}
	if n := s.asked(); n > 10 {
		t.Errorf("%d discoveries for 1000 failures", n)
	}
	s.change(func(s *apiServer) { s.refuse = 0 })
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err := c.Resolve(t.Context(), "deploy")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not asked again: %v", err)
		}
	}
}

func TestInvalidate(t *testing.T) {
	s := ordinary()
	c := connect(t, s)
	if _, err := c.Resolve(t.Context(), "deploy"); err != nil {
		t.Fatal(err)
	}
	s.change(func(s *apiServer) { s.groups = s.groups[:1] })
	if _, err := c.Resolve(t.Context(), "deploy"); err != nil {
		t.Errorf("not kept: %v", err)
	}
	c.Invalidate()
	if _, err := c.Resolve(t.Context(), "deploy"); err == nil {
		t.Error("not forgotten")
	}
}

// One aggregated API that is down costs neither the others nor what was known
// of it, and is reported.
func TestPartOfDiscoveryFails(t *testing.T) {
	both(t, func(t *testing.T, s *apiServer) {
		stale := func(on bool) {
			s.change(func(s *apiServer) { s.groups[len(s.groups)-1].versions[0].stale = on })
		}
		c := connect(t, s)
		stale(true)
		list, err := c.Resources(t.Context())
		var failed *discovery.ErrGroupDiscoveryFailed
		if !errors.As(err, &failed) || !strings.Contains(err.Error(), `"test"`) || !strings.Contains(err.Error(), "metrics.k8s.io") {
			t.Errorf("error %v", err)
		}
		if len(list) != 9 {
			t.Errorf("%s", names(list))
		}
		if _, err := c.Resolve(t.Context(), "deploy"); err != nil {
			t.Errorf("a short name: %v", err)
		}
		_, err = c.Resolve(t.Context(), "pods.metrics.k8s.io")
		if err == nil || !strings.Contains(err.Error(), "metrics.k8s.io/v1beta1 failed") {
			t.Errorf("%v; should say that it may exist", err)
		}
		stale(false)
		if _, err := c.Resolve(t.Context(), "pods.metrics.k8s.io"); err != nil {
			t.Errorf("after recovery: %v", err)
		}
		stale(true)
		_, _ = c.Resolve(t.Context(), "nothing") // fetches again
		if _, err := c.Resolve(t.Context(), "pods.metrics.k8s.io"); err != nil {
			t.Errorf("forgotten when down: %v", err)
		}
	})
}

func TestServerThatRefuses(t *testing.T) {
	s := ordinary()
	s.refuse = 403
	c := connect(t, s)
	for range 2 { // a failure is not kept
		if _, err := c.Resources(t.Context()); err == nil || !strings.Contains(err.Error(), `cluster "test": discover what http://`) {
			t.Errorf("%v", err)
		}
	}
	s.change(func(s *apiServer) { s.refuse = 0 })
	if _, err := c.Resolve(t.Context(), "pods"); err != nil {
		t.Errorf("after recovery: %v", err)
	}
}

// client-go would try for ten seconds and say nothing.
func TestBrokenConnectionIsReportedSoon(t *testing.T) {
	var tries atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		tries.Add(1)
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	c, err := cluster.New("test", &rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Resources(t.Context()); err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("%v", err)
	}
	if n := tries.Load(); n > 2 {
		t.Errorf("%d requests", n)
	}
}

// Callers share one discovery; one that loses patience does not spoil it for the
// others, and the last one calls it off.
func TestConcurrentCallersShareADiscovery(t *testing.T) {
	s := ordinary()
	s.hold, s.arrived = make(chan struct{}), make(chan struct{}, 10)
	c := connect(t, s)
	impatient, leave := context.WithCancel(t.Context())
	var first error
	var wg sync.WaitGroup
	wg.Go(func() { _, first = c.Resolve(impatient, "pods") })
	<-s.arrived
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = c.Resolve(t.Context(), "pods") })
	}
	leave()
	close(s.hold)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if first != nil && !errors.Is(first, context.Canceled) {
		t.Error(first)
	}
	if n := s.asked(); n > 2 {
		t.Errorf("%d discoveries for 21 callers", n)
	}
}

func TestCallerLeavesAHangingServer(t *testing.T) {
	s := ordinary()
	s.hold, s.arrived = make(chan struct{}), make(chan struct{}, 10)
	c := connect(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-s.arrived; cancel() }()
	if _, err := c.Resources(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(s.hold)
	if _, err := c.Resources(t.Context()); err != nil {
		t.Errorf("the next caller gets what was called off: %v", err)
	}
}

func TestNewDoesNoIO(t *testing.T) {
	c, err := cluster.New("", &rest.Config{Host: "https://192.0.2.1:6443/prefix/", Timeout: time.Second, QPS: 5})
	if err != nil {
		t.Fatal(err)
	}
	cfg := c.Config()
	if c.Name() != "192.0.2.1:6443" || c.DefaultNamespace() != "default" || c.BaseURL().String() != "https://192.0.2.1:6443/prefix/" ||
		cfg.QPS != -1 || cfg.Timeout != 0 || c.HTTPClient().Timeout != 0 || !strings.HasPrefix(cfg.UserAgent, "tidings/") {
		t.Errorf("%q %s %+v", c.Name(), c.BaseURL(), cfg)
	}
	c.BaseURL().Host = "changed"
	c.Config().Host = "changed"
	if c.BaseURL().Host == "changed" || c.Config().Host == "changed" {
		t.Error("a caller can change the cluster")
	}
	if _, err := cluster.New("x", &rest.Config{Host: "https://h", TLSClientConfig: rest.TLSClientConfig{CAFile: "/does/not/exist"}}); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("%v", err)
	}
	if _, err := cluster.New("x", nil); err == nil {
		t.Error("nil config accepted")
	}
}

func FuzzResolve(f *testing.F) {
	for _, arg := range []string{"pods", "deploy.v1.apps", "a.b.c.d", "..", "ÄÖ.v1", "x" + strings.Repeat(".", 50)} {
		f.Add(arg)
	}
	c := connect(f, ordinary())
	f.Fuzz(func(t *testing.T, arg string) {
		r, err := c.Resolve(t.Context(), arg)
		if err != nil {
			var missing *cluster.NotFoundError
			if !errors.As(err, &missing) || missing.Arg != arg {
				t.Fatalf("%q: %v", arg, err)
			}
			return
		}
		for _, name := range []string{r.String(), r.Versioned(), r.Kind + "." + r.Version + "." + r.Group} {
			again, err := c.Resolve(t.Context(), name)
			if err != nil || again.GroupResource() != r.GroupResource() {
				t.Fatalf("%q is %v, whose name %q is %v, %v", arg, r, name, again, err)
			}
		}
	})
}

func TestRedirects(t *testing.T) {
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer other.Close()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/same":
			http.Redirect(w, r, "/end", http.StatusFound)
		case "/end":
			fmt.Fprint(w, r.Header.Get("Authorization"))
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		default:
			http.Redirect(w, r, other.URL, http.StatusFound)
		}
	}))
	defer srv.Close()
	c, err := cluster.New("x", &rest.Config{Host: srv.URL, BearerToken: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for path, says := range map[string]string{"/other": "redirects to " + other.URL, "/loop": "redirected 10 times"} {
		if resp, err := c.HTTPClient().Get(srv.URL + path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v", path, resp, err)
		}
	}
	if reached.Load() {
		t.Error("another server is asked")
	}
	resp, err := c.HTTPClient().Get(srv.URL + "/same")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != "Bearer secret" {
		t.Errorf("%q", body)
	}
}
