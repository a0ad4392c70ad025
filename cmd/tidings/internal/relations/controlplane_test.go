package relations

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

// refused is the status of a set that may create no more pods.
const refused = `"status":{"replicas":0,"conditions":[{"type":"ReplicaFailure","status":"True","reason":"FailedCreate","message":"pods \"web-1-x\" is forbidden: exceeded quota: compute, requested: pods=1, used: pods=5, limited: pods=5"}]}`

// created are objects that together have every relation of the table, in the order in
// which they are created, some with a status. The path is that of a list; NS is a namespace.
var created = []struct{ path, object string }{
	{"/api/v1/namespaces", `{"metadata":{"name":"NS"}}`},
	{"/api/v1/nodes", `{"metadata":{"name":"node-1"},"spec":{"taints":[{"key":"node.kubernetes.io/disk-pressure","effect":"NoSchedule"}]}}`},
	{"/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"fast"},"provisioner":"example.com/none"}`},
	{"/api/v1/persistentvolumes", `{"metadata":{"name":"volume"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"storageClassName":"fast","hostPath":{"path":"/nowhere"}}}`},
	{"/api/v1/namespaces/NS/persistentvolumeclaims", `{"metadata":{"name":"claim"},"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"fast","volumeName":"volume","resources":{"requests":{"storage":"1Gi"}}}}`},
	{"/api/v1/namespaces/NS/configmaps", `{"metadata":{"name":"settings"}}`},
	{"/api/v1/namespaces/NS/secrets", `{"metadata":{"name":"password"}}`},
	{"/api/v1/namespaces/NS/serviceaccounts", `{"metadata":{"name":"robot"},"imagePullSecrets":[{"name":"password"}]}`},
	{"/api/v1/namespaces/NS/pods", `{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"nodeName":"node-1","serviceAccountName":"robot","automountServiceAccountToken":false,
		"volumes":[{"name":"a","configMap":{"name":"settings"}},{"name":"b","persistentVolumeClaim":{"claimName":"claim"}},{"name":"c","projected":{"sources":[{"configMap":{"name":"absent"}}]}}],
		"containers":[{"name":"c","image":"registry.example.com/web:1","envFrom":[{"secretRef":{"name":"password"}}]}]}}`},
	{"/api/v1/namespaces/NS/services", `{"metadata":{"name":"web"},"spec":{"selector":{"app":"web"},"ports":[{"port":80}]}}`},
	{"/apis/discovery.k8s.io/v1/namespaces/NS/endpointslices", `{"metadata":{"name":"web-1","labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"targetRef":{"kind":"Pod","namespace":"NS","name":"web"}}]}`},
	{"/apis/networking.k8s.io/v1/ingressclasses", `{"metadata":{"name":"edge"},"spec":{"controller":"example.com/edge"}}`},
	{"/apis/networking.k8s.io/v1/namespaces/NS/ingresses", `{"metadata":{"name":"web"},"spec":{"ingressClassName":"edge","tls":[{"hosts":["a.example.com"],"secretName":"password"}],
		"rules":[{"host":"a.example.com","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"web","port":{"number":80}}}}]}}]}}`},
	{"/apis/networking.k8s.io/v1/namespaces/NS/networkpolicies", `{"metadata":{"name":"closed"},"spec":{"podSelector":{"matchExpressions":[{"key":"app","operator":"In","values":["web"]}]}}}`},
	{"/apis/policy/v1/namespaces/NS/poddisruptionbudgets", `{"metadata":{"name":"web"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`},
	{"/apis/apps/v1/namespaces/NS/deployments", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"other"}},"template":{"metadata":{"labels":{"app":"other"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},` + refused + `}`},
	{"/apis/autoscaling/v2/namespaces/NS/horizontalpodautoscalers", `{"metadata":{"name":"web"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"web"}}}`},
	{"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/roles", `{"metadata":{"name":"reader"},"rules":[]}`},
	{"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"wide-reader"},"rules":[]}`},
	{"/apis/rbac.authorization.k8s.io/v1/namespaces/NS/rolebindings", `{"metadata":{"name":"readers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"reader"},
		"subjects":[{"kind":"ServiceAccount","namespace":"NS","name":"robot"},{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`},
	{"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"wide-readers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"wide-reader"},
		"subjects":[{"kind":"ServiceAccount","namespace":"NS","name":"robot"},{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"team"}]}`},
	{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"check"},"webhooks":[{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"NS","name":"web"}}}]}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", `{"metadata":{"name":"change"},"webhooks":[{"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"NS","name":"web"}}}]}`},
	{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("widgets", "Widget", "example.com", `,"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"namespace":"NS","name":"web"}}}}`)},
	{"/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.aggregated.example.com"},"spec":{"group":"aggregated.example.com","version":"v1","groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true,"service":{"namespace":"NS","name":"web"}}}`},
	{"/api/v1/namespaces/NS/events", `{"metadata":{"name":"web.1"},"type":"Warning","reason":"BackOff","message":"restarting","involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"NS","name":"web"}}`},
	{"/api/v1/namespaces/NS/resourcequotas", `{"metadata":{"name":"compute"},"spec":{"hard":{"services.nodeports":"5"}}}`},
	{"/api/v1/namespaces/NS/pods", `{"metadata":{"name":"stuck"},"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]},
		"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available: 1 node(s) had untolerated taint(s)."}],
			"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":1,"message":"pods is forbidden: User \"system:serviceaccount:NS:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"NS\""}}}]}}`},
	{"/apis/apps/v1/namespaces/NS/replicasets", `{"metadata":{"name":"web-1"},"spec":{"selector":{"matchLabels":{"app":"other"}},"template":{"metadata":{"labels":{"app":"other"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},` + refused + `}`},
	{"/api/v1/namespaces/NS/replicationcontrollers", `{"metadata":{"name":"old"},"spec":{"selector":{"app":"other"},"template":{"metadata":{"labels":{"app":"other"}},"spec":{"containers":[{"name":"c","image":"i"}]}}},` + refused + `}`},
	{"/api/v1/namespaces/NS/events", `{"metadata":{"name":"web.2"},"type":"Warning","reason":"FailedCreate","message":"pods \"web-0\" is forbidden: exceeded quota: compute, requested: pods=1","involvedObject":{"apiVersion":"v1","kind":"Pod","namespace":"NS","name":"web"}}`},
	{"/apis/gateway.networking.k8s.io/v1/gatewayclasses", `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"edge"}}`},
	{"/apis/gateway.networking.k8s.io/v1/namespaces/NS/gateways", `{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"door"},"spec":{"gatewayClassName":"edge","listeners":[{"tls":{"certificateRefs":[{"name":"password"}]}}]}}`},
}

// routeKinds are the kinds of the Gateway API that lead to a Service.
var routeKinds = []string{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"}

func crd(plural, kind, group, more string) string {
	scope := "Namespaced"
	if kind == "GatewayClass" || strings.HasPrefix(kind, "Wide") {
		scope = "Cluster"
	}
	return fmt.Sprintf(`{"metadata":{"name":"%s.%s","annotations":{"api-approved.kubernetes.io":"unapproved, a test"}},"spec":{"group":%q,"scope":%q,"names":{"plural":%q,"kind":%q}%s,
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, plural, group, group, scope, plural, kind, more)
}

// post creates an object, sets its status if it has one, and waits for the path if it is not served yet.
func post(t *testing.T, client *http.Client, base, path, object string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Post(base+path, "application/json", strings.NewReader(object))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		var sent struct {
			Metadata struct{ Name string }
			Status   json.RawMessage
		}
		_ = json.Unmarshal([]byte(object), &sent) // the server has accepted it
		switch {
		case resp.StatusCode < 300 && sent.Status != nil:
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, base+path+"/"+sent.Metadata.Name+"/status", strings.NewReader(`{"status":`+string(sent.Status)+`}`))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/merge-patch+json")
			if resp, err = client.Do(req); err != nil {
				t.Fatal(err)
			}
			said, _ = io.ReadAll(resp.Body)
			if resp.Body.Close(); resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: %s %s", path, resp.Status, said)
			}
			return
		case resp.StatusCode < 300:
			return
		case resp.StatusCode != http.StatusNotFound || time.Now().After(deadline):
			t.Fatalf("%s: %s %s", path, resp.Status, said)
		}
	}
}

// mirrored returns a mirror of all of a control plane.
func mirrored(t *testing.T, cp *controlplane.Cluster) *mirror.Cluster {
	t.Helper()
	m, err := mirror.New(mirror.Options{Resources: []string{mirror.Everything, "secrets"}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	if err := m.Set(t.Context(), map[string]*rest.Config{"test": cp.AdminConfig()}); err != nil {
		t.Fatal(err)
	}
	c, err := m.Cluster("test")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// treeOf returns the tree of an object with its neighbours.
func treeOf(t *testing.T, reader *Reader, c *mirror.Cluster, gvr schema.GroupVersionResource, namespace, name string) *Tree {
	t.Helper()
	r, err := c.ResourceFor(t.Context(), gvr)
	if err != nil {
		t.Fatal(err)
	}
	p := read.Params{Cluster: c, Resource: gvr, Verb: read.Get, Name: name}
	if r.Namespaced {
		p.Namespace = namespace
	}
	q, err := read.NewQuery(p)
	if err == nil {
		err = q.Bind(r)
	}
	if err != nil {
		t.Fatal(err)
	}
	found, _, err := reader.Reads.Get(t.Context(), q, read.Any, 0)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := reader.Tree(t.Context(), q, found, time.Now(), Options{Neighbours: true})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// Every relation of the table is found on a real control plane, from both of its ends.
func TestRelationsOfARealCluster(t *testing.T) {
	cp := controlplane.Shared(t)
	const ns = "relations"
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	objects := slices.Clone(created)
	for _, kind := range append([]string{"Gateway"}, routeKinds...) {
		post(t, client, cp.URL(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(strings.ToLower(kind)+"s", kind, "gateway.networking.k8s.io", ""))
		if kind != "Gateway" {
			objects = append(objects, struct{ path, object string }{"/apis/gateway.networking.k8s.io/v1/namespaces/NS/" + strings.ToLower(kind) + "s",
				`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"web"},"spec":{"parentRefs":[{"name":"door"}],"rules":[{"backendRefs":[{"name":"web","port":80}]}]}}`})
		}
	}
	post(t, client, cp.URL(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("gatewayclasses", "GatewayClass", "gateway.networking.k8s.io", ""))
	for _, o := range objects {
		post(t, client, cp.URL(), strings.ReplaceAll(o.path, "NS", ns), strings.ReplaceAll(o.object, "NS", ns))
	}

	c := mirrored(t, cp)
	reader := &Reader{Reads: read.New(read.Options{})}
	type end struct{ kind, relation string }
	forth, back := map[end]bool{}, map[end]bool{}
	for _, o := range objects {
		parts := strings.Split(strings.Trim(strings.ReplaceAll(o.path, "NS", ns), "/"), "/")
		gvr := schema.GroupVersionResource{Version: parts[1], Resource: parts[len(parts)-1]}
		if parts[0] == "apis" {
			gvr.Group, gvr.Version = parts[1], parts[2]
		}
		var named struct{ Metadata struct{ Name string } }
		if err := json.Unmarshal([]byte(strings.ReplaceAll(o.object, "NS", ns)), &named); err != nil {
			t.Fatal(err)
		}
		tree := treeOf(t, reader, c, gvr, ns, named.Metadata.Name)
		self := tree.Object.Ref
		for _, u := range tree.Unlooked {
			t.Errorf("%s: %s is not looked at: %s", self, u.Resource, u.Why)
		}
		for _, n := range tree.Neighbours.Objects {
			for _, l := range n.Links {
				switch {
				case n.Hops == 2 || n.Missing && n.Name != "absent":
				case l.From == self.String() && l.To == n.Ref.String():
					forth[end{kindName(self.APIVersion, self.Kind), l.Relation}] = true
				case l.To == self.String() && l.From == n.Ref.String():
					back[end{kindName(n.APIVersion, n.Kind), l.Relation}] = true
				}
			}
		}
		if self.Kind == "Pod" && self.Name == "web" {
			if len(tree.Cause) != 1 || tree.Cause[0].Message != `ConfigMap "absent" does not exist` || tree.Cause[0].Field != "spec.volumes[].projected.sources[].configMap" {
				t.Errorf("the cause is %+v", tree.Cause)
			}
			var two []string
			for _, n := range tree.Neighbours.Objects {
				if n.Hops == 2 {
					two = append(two, n.Ref.String())
				}
			}
			for _, want := range []string{"PersistentVolume/volume", "StorageClass/fast"} {
				if !slices.Contains(two, want) {
					t.Errorf("%s is not at two hops: %v", want, two)
				}
			}
		}
	}
	for _, r := range relationTable {
		if !forth[end{r.from, r.name}] {
			t.Errorf("%s %s %s: not found", r.from, r.name, r.to)
		}
		if !back[end{r.from, r.name}] && r.to != image {
			t.Errorf("%s %s %s: not found from its end", r.from, r.name, r.to)
		}
	}
}
