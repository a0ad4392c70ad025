package cluster_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// apiServer answers discovery and nothing else.
type apiServer struct {
	mu         sync.Mutex
	groups     []group
	legacyOnly bool
	refuse     int // status to answer with, when not 0
	requests   int // of /apis, and those refused
	hold       chan struct{}
	arrived    chan struct{}
}

// group is an API group; versions are in the server's order, the preferred first.
type group struct {
	name     string
	versions []version
}

type version struct {
	name      string
	stale     bool
	resources []metav1.APIResource
}

func res(name, singular, kind string, short ...string) metav1.APIResource {
	return metav1.APIResource{Name: name, SingularName: singular, Kind: kind, Namespaced: true, ShortNames: short,
		Verbs: metav1.Verbs{"get", "list", "watch", "create"}}
}

// ordinary is a small but typical cluster.
func ordinary() *apiServer {
	review := res("tokenreviews", "tokenreview", "TokenReview")
	review.Verbs = metav1.Verbs{"create"}
	status := res("pods/status", "", "Pod")
	return &apiServer{groups: []group{
		{"", []version{{name: "v1", resources: []metav1.APIResource{
			res("pods", "pod", "Pod", "po"), status,
			res("events", "event", "Event", "ev"),
			res("services", "service", "Service", "svc"),
		}}}},
		{"apps", []version{{name: "v1", resources: []metav1.APIResource{
			res("deployments", "deployment", "Deployment", "deploy"),
			res("replicasets", "replicaset", "ReplicaSet", "rs"),
		}}}},
		{"events.k8s.io", []version{{name: "v1", resources: []metav1.APIResource{res("events", "event", "Event", "ev")}}}},
		{"authentication.k8s.io", []version{{name: "v1", resources: []metav1.APIResource{review}}}},
		{"autoscaling", []version{
			{name: "v2", resources: []metav1.APIResource{res("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", "hpa")}},
			{name: "v1", resources: []metav1.APIResource{
				res("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler", "hpa"),
				res("oldies", "oldy", "Oldy"),
			}},
		}},
		{"serving.knative.dev", []version{{name: "v1", resources: []metav1.APIResource{res("services", "service", "Service", "ksvc")}}}},
		{"metrics.k8s.io", []version{{name: "v1beta1", resources: []metav1.APIResource{res("pods", "", "PodMetrics")}}}},
	}}
}

func (s *apiServer) change(f func(*apiServer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *apiServer) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.arrived != nil && r.URL.Path == "/api" {
		s.arrived <- struct{}{}
		select {
		case <-s.hold:
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != 0 {
		s.requests++
		http.Error(w, "no", s.refuse)
		return
	}
	aggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") && !s.legacyOnly
	w.Header().Set("Content-Type", "application/json")
	switch {
	case (r.URL.Path == "/api" || r.URL.Path == "/apis") && aggregated:
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		list := apidiscovery.APIGroupDiscoveryList{}
		for _, g := range s.groups {
			if (g.name == "") == (r.URL.Path == "/api") {
				list.Items = append(list.Items, g.aggregated())
			}
		}
		if r.URL.Path == "/apis" {
			s.requests++
		}
		_ = json.NewEncoder(w).Encode(list)
	case r.URL.Path == "/api":
		_ = json.NewEncoder(w).Encode(metav1.APIVersions{Versions: []string{"v1"}})
	case r.URL.Path == "/apis":
		s.requests++
		list := metav1.APIGroupList{}
		for _, g := range s.groups {
			if g.name != "" {
				list.Groups = append(list.Groups, g.legacy())
			}
		}
		_ = json.NewEncoder(w).Encode(list)
	default:
		for _, g := range s.groups {
			for _, v := range g.versions {
				gv := strings.TrimPrefix(g.name+"/"+v.name, "/")
				if r.URL.Path == "/apis/"+gv || g.name == "" && r.URL.Path == "/api/"+gv {
					if v.stale {
						http.Error(w, "down", http.StatusServiceUnavailable)
						return
					}
					_ = json.NewEncoder(w).Encode(metav1.APIResourceList{GroupVersion: gv, APIResources: v.resources})
					return
				}
			}
		}
		http.NotFound(w, r)
	}
}

func (g group) aggregated() apidiscovery.APIGroupDiscovery {
	out := apidiscovery.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}}
	for _, v := range g.versions {
		av := apidiscovery.APIVersionDiscovery{Version: v.name, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
		if v.stale {
			av.Freshness = apidiscovery.DiscoveryFreshnessStale
		}
		for _, r := range v.resources {
			if strings.Contains(r.Name, "/") || v.stale {
				continue
			}
			av.Resources = append(av.Resources, apidiscovery.APIResourceDiscovery{
				Resource: r.Name, SingularResource: r.SingularName, Scope: apidiscovery.ScopeNamespace,
				ResponseKind: &metav1.GroupVersionKind{Group: g.name, Version: v.name, Kind: r.Kind},
				ShortNames:   r.ShortNames, Categories: r.Categories, Verbs: r.Verbs,
			})
		}
		out.Versions = append(out.Versions, av)
	}
	return out
}

func (g group) legacy() metav1.APIGroup {
	out := metav1.APIGroup{Name: g.name}
	for _, v := range g.versions {
		out.Versions = append(out.Versions, metav1.GroupVersionForDiscovery{GroupVersion: g.name + "/" + v.name, Version: v.name})
	}
	out.PreferredVersion = out.Versions[0]
	return out
}

// connect serves s and makes a cluster of it.
func connect(t testing.TB, s *apiServer) *cluster.Cluster {
	t.Helper()
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	c, err := cluster.New("test", &rest.Config{Host: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
