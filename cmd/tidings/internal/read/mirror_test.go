package read_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func asError(err error) (*mirror.Error, bool) {
	var e *mirror.Error
	return e, errors.As(err, &e)
}

func TestReads(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		for i := range 5 {
			r.set("default", fmt.Sprintf("a%d", i), "1", fmt.Sprintf("even=%v", i%2 == 0))
		}
		last := r.set("kube-public", "b", "1")
		q := r.query("cm")

		all, meta := r.list(q)
		if len(all) != 6 || meta.ResourceVersion != last || meta.Continue != "" || meta.Remaining != 0 {
			t.Errorf("listed %v, %+v", all, meta)
		}
		for name, change := range map[string]func(*read.Params){
			"everything":    func(*read.Params) {},
			"a namespace":   func(q *read.Params) { q.Namespace = "default" },
			"no namespace":  func(q *read.Params) { q.Namespace = "nowhere" },
			"labels":        func(q *read.Params) { q.Labels = selector(t, "even=true") },
			"not labels":    func(q *read.Params) { q.Labels = selector(t, "even!=true") },
			"name":          func(q *read.Params) { q.Fields = fieldSelector(t, "metadata.name=a1") },
			"not name":      func(q *read.Params) { q.Fields = fieldSelector(t, "metadata.name!=a1") },
			"namespace":     func(q *read.Params) { q.Fields = fieldSelector(t, "metadata.namespace=default") },
			"contradiction": func(q *read.Params) { q.Namespace = "default"; q.Fields = fieldSelector(t, "metadata.namespace=x") },
			"labels, fields": func(q *read.Params) {
				q.Labels = selector(t, "even")
				q.Fields = fieldSelector(t, "metadata.name!=a1")
			},
		} {
			cached := q
			change(&cached)
			live := cached
			live.Source = read.Live
			fromCache, _ := r.list(cached)
			fromServer, _ := r.list(live)
			same(t, name, fromCache, fromServer)
		}

		q.Namespace, q.Name = "default", "a3"
		o, version, err := r.get(q, read.Any, 0)
		r.must(err)
		if o.GetName() != "a3" || version != last {
			t.Errorf("got %s at %s", line(o), version)
		}
		live := q
		live.Source = read.Live
		now, _, err := r.get(live, read.Any, 0)
		r.must(err)
		if string(now.JSON()) != string(o.JSON()) {
			t.Errorf("cached %s\n  live %s", o.JSON(), now.JSON())
		}
		for _, source := range []read.Source{read.Cache, read.Live} {
			q.Name, q.Source = "nobody", source
			_, _, err := r.get(q, read.Any, 0)
			r.refuse(err, mirror.NotFound)
		}
	})
}

func TestStartsOnFirstUseAndOnce(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, mirror.Options{}, func(r *rig) {
		synctest.Wait()
		checks := fakeapi.RequestKind{Verb: "get"} // of the connection
		if asked := r.server.Requests(); len(asked) != 1 || asked[checks] != 1 {
			t.Fatalf("requests before the first query: %v", asked)
		}
		done := make(chan error)
		for range 10 {
			go func() { done <- r.listErr(r.query("configmaps")) }()
		}
		for range 10 {
			r.must(<-done)
		}
		synctest.Wait()
		if n := r.server.Count("list", configMaps); n != 1 {
			t.Errorf("%d lists for ten first readers", n)
		}
		if n := r.server.OpenWatches(configMaps); n != 1 {
			t.Errorf("%d watches open", n)
		}
	})
}

func TestWrongQueries(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		for _, tt := range []struct {
			resource string
			query    read.Params
		}{
			{"nodes", read.Params{Namespace: "default"}},
			{"pods", read.Params{Namespace: "../../../api/v1/nodes"}},
			{"pods", read.Params{Limit: -1}},
			{"pods", read.Params{Fields: fieldSelector(t, "spec.colour=red")}},
			{"nodes", read.Params{Fields: fieldSelector(t, "metadata.namespace=x")}},
			{"pods", read.Params{Source: "elsewhere"}},
			{"pods", read.Params{Continue: "%"}},
			{"pods", read.Params{Continue: "abcd"}},
		} {
			for _, source := range []read.Source{read.Cache, read.Live} {
				q := tt.query
				q.Cluster, q.Resource = r.query(tt.resource).Cluster, r.query(tt.resource).Resource
				if q.Source == "" {
					q.Source = source
				}
				r.refuse(r.listErr(q), mirror.Invalid)
			}
		}
		for _, name := range []string{"..", ".", "a/b", "a%2fb"} {
			for _, source := range []read.Source{read.Cache, read.Live} {
				q := r.query("pods")
				q.Namespace, q.Name, q.Source = "default", name, source
				_, _, err := r.get(q, read.Any, 0)
				r.refuse(err, mirror.Invalid)
			}
		}
		q := r.query("pods")
		q.Name = "x"
		_, _, err := r.get(q, read.Any, 0)
		r.refuse(err, mirror.Invalid)
		e := r.refuse(r.listErr(read.Params{Cluster: q.Cluster, Resource: q.Resource, Fields: fieldSelector(t, "a=b")}), mirror.Invalid)
		if !slices.Contains(e.Exists, "spec.nodeName") || slices.Contains(e.Exists, "spec.host") {
			t.Errorf("the fields that exist: %v", e.Exists)
		}
	})
}

func TestUnknownResources(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		for _, name := range []string{"deploymnts", "gizmos", "pods.v7", ""} {
			_, err := r.resolve("", name)
			e := r.refuse(err, mirror.UnknownResource)
			if len(e.Exists) == 0 {
				t.Errorf("%q: the error does not say what exists", name)
			}
		}
		for _, gvr := range []schema.GroupVersionResource{
			{Group: "apps", Version: "v9", Resource: "deployments"},
			{Group: "nope", Version: "v1", Resource: "deployments"},
			{Version: "v1", Resource: "deployments"},
			{Group: "apps", Version: "v1", Resource: "pods"},
		} {
			_, err := r.query("pods").Cluster.ResolveGVR(r.ctx, gvr)
			r.refuse(err, mirror.UnknownResource)
		}
		for _, name := range []string{"deployments", "deploy", "deployment"} {
			target, err := r.query("pods").Cluster.ResolveGVR(r.ctx, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: name})
			r.must(err)
			if target.Versioned() != "deployments.v1.apps" {
				t.Errorf("%s means %s", name, target)
			}
		}
	})
}

// Names are looked up, and resources offered, without a request each time; what somebody
// has named is offered at once.
func TestDiscoveryIsNotRepeated(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		c := r.query("pods").Cluster
		discoveries := 0
		r.server.Inject(func(req *fakeapi.Request) *fakeapi.Fault {
			if req.HTTP.URL.Path == "/apis" {
				discoveries++
			}
			return nil
		})
		offered := func(resource string) bool {
			all, err := c.Resources(r.ctx)
			r.must(err)
			return slices.ContainsFunc(all, func(o cluster.Resource) bool { return o.Resource == resource })
		}
		for range 5 {
			for _, name := range []string{"deploy", "deployment", "deployments"} {
				_, err := c.ResolveGVR(r.ctx, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: name})
				r.must(err)
			}
			_, err := c.ResolveGVR(r.ctx, schema.GroupVersionResource{Version: "v1", Resource: "po"})
			r.must(err)
			if !offered("deployments") || offered("gadgets") {
				t.Error("the wrong resources are on offer")
			}
			time.Sleep(time.Minute)
		}
		if discoveries > 0 {
			t.Errorf("%d discoveries for names that were known", discoveries)
		}
		gadgets := metav1.APIResource{Group: "example.com", Version: "v1", Name: "gadgets", Kind: "Gadget", Verbs: metav1.Verbs{"list", "watch"}}
		r.must(r.server.AddResource(gadgets))
		_, err := r.resolve("", "gadgets")
		r.must(err)
		if !offered("gadgets") {
			t.Error("a resource that was named is not on offer")
		}
		r.server.RemoveResource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"})
		time.Sleep(11 * time.Minute)
		if offered("gadgets") {
			t.Error("a resource that is gone is on offer after eleven minutes")
		}
	})
}

func TestClusterNames(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		_, err := r.resolve("nowhere", "pods")
		same(t, "clusters", r.refuse(err, mirror.UnknownCluster).Exists, []string{"test"})
		if _, err := r.resolve("", "pods"); err != nil {
			t.Errorf("with one cluster it need not be named: %v", err)
		}
		other := rest.CopyConfig(r.config)
		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": r.config, "other": other}))
		_, err = r.resolve("", "pods")
		same(t, "clusters", r.refuse(err, mirror.ClusterNeeded).Exists, []string{"other", "test"})
		r.must(r.mirror.Set(r.ctx, nil))
		_, err = r.resolve("", "pods")
		r.refuse(err, mirror.Unreachable)
	})
	inBubble(t, fakeapi.Options{}, mirror.Options{Default: "test"}, func(r *rig) {
		r.must(r.mirror.Set(r.ctx, map[string]*rest.Config{"test": r.config, "other": rest.CopyConfig(r.config)}))
		if target, err := r.resolve("", "pods"); err != nil || target.Cluster.Name() != "test" {
			t.Errorf("default: %v, %v", target, err)
		}
	})
}

func TestSecretsAreWithheldUnlessNamed(t *testing.T) {
	for _, tt := range []struct {
		resources []string
		shown     bool
	}{
		{nil, false},
		{[]string{mirror.Everything}, false},
		{[]string{"pods", mirror.Everything}, false},
		{[]string{"pods"}, false},
		{[]string{"secrets"}, true},
		{[]string{"Secret.v1", mirror.Everything}, true},
	} {
		inBubble(t, fakeapi.Options{}, mirror.Options{Resources: tt.resources}, func(r *rig) {
			_, err := r.server.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "s"}})
			r.must(err)
			for _, name := range []string{"secrets", "secret", "secrets.v1"} {
				_, err := r.resolve("", name)
				if tt.shown {
					r.must(err)
				} else {
					r.refuse(err, mirror.Withheld)
				}
			}
			if n := r.server.Count("list", corev1.SchemeGroupVersion.WithResource("secrets")); !tt.shown && n > 0 {
				t.Error("secrets were listed")
			}
			c, err := r.mirror.Cluster("")
			r.must(err)
			all, err := c.Resources(r.ctx)
			r.must(err)
			for _, res := range all {
				if res.Resource == "secrets" && !tt.shown {
					t.Error("secrets are on offer")
				}
			}
		})
	}
}

func TestLimitedToNamedResources(t *testing.T) {
	inBubble(t, fakeapi.Options{}, mirror.Options{Resources: []string{"deploy", "cm"}}, func(r *rig) {
		_, err := r.resolve("", "pods")
		same(t, "mirrored", r.refuse(err, mirror.NotMirrored).Exists, []string{"deployments.apps", "configmaps"})
		r.query("configmaps")
		synctest.Wait()
		s := r.mirror.Status()
		if !s.Ready || len(s.Clusters[0].Resources) != 2 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestNamedResourcesArePursued(t *testing.T) {
	var allowed atomic.Bool
	server := fakeapi.Options{Allow: func(_ fakeapi.User, a fakeapi.Access) bool { return allowed.Load() || a.Resource != "configmaps" }}
	inBubble(t, server, mirror.Options{Resources: []string{"configmaps", "gizmos"}}, func(r *rig) {
		r.server.SetDown(true)
		synctest.Wait()
		s := r.mirror.Status()
		if s.Ready || len(s.Clusters[0].Resources) != 2 || s.Clusters[0].Resources[0].Err == nil {
			t.Errorf("a cluster that is down: %+v", s)
		}
		r.server.SetDown(false)
		time.Sleep(time.Minute)
		for _, res := range r.mirror.Status().Clusters[0].Resources {
			want := map[string]mirror.Reason{"configmaps.v1": mirror.Forbidden, "gizmos": mirror.UnknownResource}[res.Name]
			if mirror.ReasonOf(res.Err) != want || !res.Required {
				t.Errorf("%s: %v", res.Name, res.Err)
			}
		}
		allowed.Store(true)
		r.must(r.server.AddResource(metav1.APIResource{Name: "gizmos", Kind: "Gizmo", Group: "example.com", Version: "v1", Namespaced: true}))
		time.Sleep(time.Minute)
		if s := r.mirror.Status(); !s.Ready {
			t.Errorf("everything is there now: %+v", s)
		}
	})
}

func TestRefusals(t *testing.T) {
	var allowed atomic.Bool
	server := fakeapi.Options{Allow: func(_ fakeapi.User, a fakeapi.Access) bool { return allowed.Load() || a.Resource != "configmaps" }}
	inBubble(t, server, mirror.Options{}, func(r *rig) {
		q := r.query("configmaps")
		begun := time.Now()
		e := r.refuse(r.listErr(q), mirror.Forbidden)
		if !apierrors.IsForbidden(e) || time.Since(begun) > 0 || e.Retry == 0 {
			t.Errorf("after %s: %+v", time.Since(begun), e)
		}
		requests := func() int { return r.server.Count("list", configMaps) + r.server.Count("watch", configMaps) }
		asked := requests()
		r.refuse(r.listErr(q), mirror.Forbidden)
		if now := requests(); now != asked {
			t.Errorf("it was tried again at once: %d requests, then %d", asked, now)
		}
		live := q
		live.Source = read.Live
		r.refuse(r.listErr(live), mirror.Forbidden)
		allowed.Store(true)
		time.Sleep(e.Retry)
		r.must(r.listErr(q))
	})
}

func TestRightsInOneNamespaceOnly(t *testing.T) {
	server := fakeapi.Options{Allow: func(_ fakeapi.User, a fakeapi.Access) bool {
		return a.Resource != "configmaps" || a.Namespace == "default"
	}}
	inBubble(t, server, mirror.Options{}, func(r *rig) {
		v := r.set("default", "a", "1")
		r.set("kube-public", "b", "1")
		q := r.query("cm")
		r.refuse(r.listErr(q), mirror.Forbidden)
		q.Namespace = "kube-public"
		r.refuse(r.listErr(q), mirror.Forbidden)
		q.Namespace = "default"
		got, _ := r.list(q)
		same(t, "the namespace", got, []string{"default/a@" + v})
		w := r.watch(q, "")
		defer w.stop()
		w.expect("ADDED default/a@"+v, "SYNCED")
		for i := range 50 {
			q.Namespace = fmt.Sprint("invented-", i)
			r.refuse(r.listErr(q), mirror.Forbidden)
		}
		time.Sleep(time.Minute)
		r.refuse(r.listErr(q), mirror.Forbidden)
		if n := len(r.mirror.Status().Clusters[0].Resources); n > 3 {
			t.Errorf("%d informers are remembered", n)
		}
	})
}

func TestUnreachableClusters(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, mirror.Options{Wait: 3 * time.Second}, func(r *rig) {
		q := r.query("configmaps")
		hold := make(chan struct{})
		r.server.Inject(fakeapi.On("list", configMaps, &fakeapi.Fault{Until: hold}))
		begun := time.Now()
		e := r.refuse(r.listErr(q), mirror.NotSynced)
		if took := time.Since(begun); took != 3*time.Second || e.Progress == nil || e.Retry <= 0 {
			t.Errorf("after %s: %+v", took, e)
		}
		close(hold)
		r.must(r.listErr(q))

		r.server.SetDown(true)
		synctest.Wait()
		r.must(r.listErr(q)) // from memory
		q.Source = read.Live
		r.refuse(r.listErr(q), mirror.Unreachable)
		pods := r.query("pods")
		e = r.refuse(r.listErr(pods), mirror.NotSynced)
		if e.Progress.LastError == nil {
			t.Errorf("without the reason: %+v", e)
		}
	})
}

func TestDefinitionsThatComeAndGo(t *testing.T) {
	gizmos := metav1.APIResource{Name: "gizmos", SingularName: "gizmo", Kind: "Gizmo", Group: "example.com", Version: "v1", Namespaced: true}
	gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gizmos"}
	inBubble(t, fakeapi.Options{}, mirror.Options{}, func(r *rig) {
		_, err := r.resolve("", "gizmos")
		r.refuse(err, mirror.UnknownResource)
		for range 2 {
			r.must(r.server.AddResource(gizmos))
			time.Sleep(10 * time.Second)
			w := r.watch(r.query("gizmos"), "")
			w.expect("SYNCED")
			r.server.RemoveResource(gvr)
			w.expect("end: Ended")
			w.stop()
			time.Sleep(10 * time.Second)
			_, err := r.resolve("", "gizmos")
			r.refuse(err, mirror.UnknownResource)
		}
	})
}
