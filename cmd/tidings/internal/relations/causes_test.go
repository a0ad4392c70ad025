package relations

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
)

const (
	someTemplate = `"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	somePod      = `"spec":{"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}`
)

// rigged has objects on a real control plane.
func rigged(t *testing.T, objects [][2]string) *mirror.Cluster {
	t.Helper()
	cp := controlplane.Shared(t)
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	for _, o := range objects {
		post(t, client, cp.URL(), o[0], o[1])
	}
	return mirrored(t, cp)
}

func terminated(message string) string {
	quoted, _ := json.Marshal(message)
	return `"status":{"containerStatuses":[{"name":"c","image":"i","imageID":"","ready":false,"restartCount":1,"state":{"terminated":{"exitCode":1,"reason":"Error","message":` + string(quoted) + `}}}]}`
}

// The likely cause leads beyond the tree, to the object that explains what is wrong, with
// the field that says so.
func TestCausesOfARealCluster(t *testing.T) {
	const ns = "causes"
	core, rbacs := "/api/v1/namespaces/"+ns+"/", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/"
	expired := certificateUntil(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	denied := `Error: pods is forbidden: User "system:serviceaccount:causes:%s" cannot list resource "pods" in API group "" in the namespace "causes"`
	c := rigged(t, [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"causes"}}`},
		{core + "resourcequotas", `{"metadata":{"name":"compute"},"spec":{"hard":{"services.nodeports":"9"}}}`},
		{"/apis/apps/v1/namespaces/causes/replicasets", `{"metadata":{"name":"many"},"spec":{"replicas":9,` + someTemplate + `},` + refused + `}`},
		{"/apis/apps/v1/namespaces/causes/statefulsets", `{"metadata":{"name":"set"},"spec":{"serviceName":"set",` + someTemplate + `}}`},
		{core + "events", `{"metadata":{"name":"set.1"},"type":"Warning","reason":"FailedCreate","message":"create Pod set-0 in StatefulSet set failed error: pods \"set-0\" is forbidden: exceeded quota: compute, requested: cpu=2, used: cpu=1, limited: cpu=2","involvedObject":{"apiVersion":"apps/v1","kind":"StatefulSet","namespace":"causes","name":"set"}}`},
		{core + "secrets", `{"metadata":{"name":"old-tls"},"type":"kubernetes.io/tls","data":{"tls.crt":"` + expired + `","tls.key":"Y2FuYXJ5"}}`},
		{"/apis/networking.k8s.io/v1/namespaces/causes/ingresses", `{"metadata":{"name":"shop"},"spec":{"tls":[{"hosts":["a.example.com"],"secretName":"old-tls"}],"rules":[{"host":"a.example.com","http":{"paths":[{"path":"/","pathType":"Prefix","backend":{"service":{"name":"right","port":{"number":80}}}}]}}]}}`},
		{core + "pods", `{"metadata":{"name":"web","labels":{"app":"web","tier":"front"}},` + somePod + `}`},
		{core + "pods", `{"metadata":{"name":"web-2","labels":{"app":"web","tier":"front"}},` + somePod + `}`},
		{core + "services", `{"metadata":{"name":"right"},"spec":{"selector":{"app":"web"},"ports":[{"port":80}]}}`},
		{core + "services", `{"metadata":{"name":"slip"},"spec":{"selector":{"app":"wbe"},"ports":[{"port":80}]}}`},
		{core + "services", `{"metadata":{"name":"other-key"},"spec":{"selector":{"k8s-app":"web"},"ports":[{"port":80}]}}`},
		{core + "services", `{"metadata":{"name":"one-of-two"},"spec":{"selector":{"app":"web","tier":"back"},"ports":[{"port":80}]}}`},
		{core + "services", `{"metadata":{"name":"stranger"},"spec":{"selector":{"app":"database"},"ports":[{"port":80}]}}`},
		{core + "serviceaccounts", `{"metadata":{"name":"unbound"}}`},
		{core + "serviceaccounts", `{"metadata":{"name":"bound"}}`},
		{rbacs + "rolebindings", `{"metadata":{"name":"little"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"little"},"subjects":[{"kind":"ServiceAccount","namespace":"causes","name":"bound"}]}`},
		{core + "pods", `{"metadata":{"name":"refused"},` + somePod + `,` + terminated(strings.Replace(denied, "%s", "unbound", 1)) + `}`},
		{core + "pods", `{"metadata":{"name":"refused-too"},` + somePod + `,` + terminated(strings.Replace(denied, "%s", "bound", 1)) + `}`},
		{core + "pods", `{"metadata":{"name":"waiting"},"spec":{"nodeSelector":{"disk":"causes"},"automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]},"status":{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/1 nodes are available: 1 node(s) had untolerated taint(s)."}]}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"causes-full","labels":{"disk":"causes"}},"spec":{"taints":[{"key":"node.kubernetes.io/disk-pressure","effect":"NoSchedule"}]},"status":{"conditions":[{"type":"DiskPressure","status":"True","reason":"KubeletHasDiskPressure","message":"kubelet has disk pressure"}]}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"causes-other","labels":{"disk":"none"}},"spec":{"taints":[{"key":"node.kubernetes.io/disk-pressure","effect":"NoSchedule"}]}}`},
	})
	reader := &Reader{Reads: read.New(read.Options{})}
	tree := func(group, resource, name string) *Tree {
		return treeOf(t, reader, c, schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}, ns, name)
	}
	for _, test := range []struct{ group, resource, name, way, message, field string }{
		{"apps", "replicasets", "many", "ReplicaSet/many ResourceQuota/compute", "it refuses objects of ReplicaSet/many: requested: pods=1, used: pods=5, limited: pods=5", "status.hard"},
		{"apps", "statefulsets", "set", "StatefulSet/set Event/set.1 ResourceQuota/compute", "it refuses objects of StatefulSet/set: requested: cpu=2, used: cpu=1, limited: cpu=2", "status.hard"},
		{"networking.k8s.io", "ingresses", "shop", "Secret/old-tls", "the certificate expired at 2026-01-02T03:04:05Z", `data["tls.crt"]`},
		{"", "services", "slip", "Service/slip", "it selects no pods; 2 of the namespace have app=web, not app=wbe", "spec.selector"},
		{"", "services", "other-key", "Service/other-key", "it selects no pods; 2 of the namespace have app=web, not k8s-app=web", "spec.selector"},
		{"", "services", "one-of-two", "Service/one-of-two", "it selects no pods; 2 of the namespace have app=web and tier=front, not tier=back", "spec.selector"},
		{"", "services", "stranger", "", "", ""},
		{"", "services", "right", "", "", ""},
		{"", "pods", "refused", "Pod/refused ServiceAccount/unbound", `it could not list pods in the namespace "causes": no binding is for it`, "subjects of bindings"},
		{"", "pods", "refused-too", "Pod/refused-too ServiceAccount/bound", `it could not list pods in the namespace "causes": its bindings there are RoleBinding/little (Role/little)`, "subjects of bindings"},
		{"", "pods", "waiting", "Pod/waiting Node/causes-full", "DiskPressure is True: KubeletHasDiskPressure: kubelet has disk pressure", "status.conditions[DiskPressure]"},
	} {
		got := tree(test.group, test.resource, test.name).Cause
		var way []string
		last := Cause{}
		for _, c := range got {
			way, last = append(way, c.Ref.String()), c
		}
		if strings.Join(way, " ") != test.way || last.Message != test.message || last.Field != test.field {
			t.Errorf("%s/%s: the cause is %+v", test.resource, test.name, got)
		}
	}
	if text, _ := json.Marshal(tree("networking.k8s.io", "ingresses", "shop")); strings.Contains(string(text), "Y2FuYXJ5") || strings.Contains(string(text), expired[:40]) {
		t.Errorf("the data of a Secret is told: %s", text)
	}

	// What the caller may not read explains nothing, and no binding is claimed to be missing.
	reader.Authorize = func(_ context.Context, q *read.Query) error {
		if p := q.Params(); slices.Contains([]string{"secrets", "resourcequotas", "rolebindings"}, p.Resource.Resource) {
			return apierrors.NewForbidden(p.Resource.GroupResource(), p.Name, nil)
		}
		return nil
	}
	if got := tree("networking.k8s.io", "ingresses", "shop").Cause; len(got) != 0 {
		t.Errorf("without the right to Secrets: %+v", got)
	}
	if got := tree("apps", "replicasets", "many").Cause; len(got) != 1 {
		t.Errorf("without the right to ResourceQuotas: %+v", got)
	}
	refused := tree("", "pods", "refused")
	if len(refused.Cause) != 1 || !slices.ContainsFunc(refused.Unlooked, func(u Unlooked) bool { return strings.HasPrefix(u.Resource, "rolebindings") }) {
		t.Errorf("without the right to RoleBindings: %+v; not looked at: %+v", refused.Cause, refused.Unlooked)
	}
}

// The RoleBindings of all namespaces are found for a ServiceAccount, or it is said why
// not.
func TestRoleBindingsOfOtherNamespaces(t *testing.T) {
	binding := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"},"subjects":[{"kind":"ServiceAccount","namespace":"accounts","name":"robot"}]}`
	}
	c := rigged(t, [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"accounts"}}`},
		{"/api/v1/namespaces", `{"metadata":{"name":"accounts-other"}}`},
		{"/api/v1/namespaces/accounts/serviceaccounts", `{"metadata":{"name":"robot"}}`},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/accounts/rolebindings", binding("here")},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/accounts-other/rolebindings", binding("there")},
	})
	reader := &Reader{Reads: read.New(read.Options{})}
	found := func() (names []string, unlooked []Unlooked) {
		tree := treeOf(t, reader, c, schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, "accounts", "robot")
		for _, n := range tree.Neighbours.Objects {
			if n.Kind == "RoleBinding" {
				names = append(names, n.Namespace+"/"+n.Name)
			}
		}
		return names, tree.Unlooked
	}
	if names, unlooked := found(); !slices.Equal(names, []string{"accounts/here", "accounts-other/there"}) || unlooked != nil {
		t.Errorf("%q; not looked at: %+v", names, unlooked)
	}
	reader.Authorize = func(_ context.Context, q *read.Query) error {
		if p := q.Params(); p.Resource.Resource == "rolebindings" && p.Namespace != "accounts" {
			return apierrors.NewForbidden(p.Resource.GroupResource(), p.Name, nil)
		}
		return nil
	}
	names, unlooked := found()
	if !slices.Equal(names, []string{"accounts/here"}) || len(unlooked) != 1 || unlooked[0].Resource != "rolebindings.rbac.authorization.k8s.io of other namespaces" {
		t.Errorf("in one namespace: %q; not looked at: %+v", names, unlooked)
	}
}

// A cluster-scoped custom resource owns objects of several namespaces.
func TestChildrenOfACustomOwner(t *testing.T) {
	cp := controlplane.Shared(t)
	client, err := rest.HTTPClientFor(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	uidOf := func(path string) string {
		resp, err := client.Get(cp.URL() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var o struct{ Metadata struct{ UID string } }
		if err := json.NewDecoder(resp.Body).Decode(&o); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(path, resp.Status, err)
		}
		return o.Metadata.UID
	}
	post(t, client, cp.URL(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("widetenants", "WideTenant", "owners.example.com", ""))
	post(t, client, cp.URL(), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd("rooms", "Room", "owners.example.com", ""))
	const group = "/apis/owners.example.com/v1/"
	post(t, client, cp.URL(), group+"widetenants", `{"apiVersion":"owners.example.com/v1","kind":"WideTenant","metadata":{"name":"acme"}}`)
	tenant := `"ownerReferences":[{"apiVersion":"owners.example.com/v1","kind":"WideTenant","name":"acme","uid":"` + uidOf(group+"widetenants/acme") + `"}]`
	for _, ns := range []string{"owners-a", "owners-b"} {
		post(t, client, cp.URL(), "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
		post(t, client, cp.URL(), group+"namespaces/"+ns+"/rooms", `{"apiVersion":"owners.example.com/v1","kind":"Room","metadata":{"name":"room",`+tenant+`}}`)
		room := `"ownerReferences":[{"apiVersion":"owners.example.com/v1","kind":"Room","name":"room","uid":"` + uidOf(group+"namespaces/"+ns+"/rooms/room") + `"}]`
		post(t, client, cp.URL(), "/api/v1/namespaces/"+ns+"/configmaps", `{"metadata":{"name":"settings",`+room+`}}`)
	}
	c := mirrored(t, cp)
	reader := &Reader{Reads: read.New(read.Options{})}
	tree := treeOf(t, reader, c, schema.GroupVersionResource{Group: "owners.example.com", Version: "v1", Resource: "widetenants"}, "", "acme")
	var got []string
	for _, room := range tree.Object.Children {
		for _, child := range room.Children {
			got = append(got, room.Namespace+" "+room.Ref.String()+" "+child.Ref.String())
		}
	}
	if want := []string{"owners-a Room/room ConfigMap/settings", "owners-b Room/room ConfigMap/settings"}; !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	leaf := treeOf(t, reader, c, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "owners-b", "settings")
	if len(leaf.Owners) != 2 || leaf.Owners[0].Ref.String() != "WideTenant/acme" || leaf.Owners[0].Namespace != "" || leaf.Owners[1].Ref.String() != "Room/room" {
		t.Errorf("the owners are %+v", leaf.Owners)
	}
}
