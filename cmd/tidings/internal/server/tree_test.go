package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cmd/tidings/internal/relations"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// treeOf asks for a tree as a caller.
func (r *rig) treeOf(token, path string) (*relations.Tree, answer) {
	r.Helper()
	a := r.as(token, path)
	if a.code != http.StatusOK {
		r.Fatalf("%s: %d %s", path, a.code, a.body)
	}
	tree := new(relations.Tree)
	r.must(json.Unmarshal(a.Data, tree))
	return tree, a
}

// outline draws a node and what is below it on one line.
func outline(n *relations.Node) string {
	out := n.String()
	if n.Hidden > 0 {
		out += fmt.Sprintf(" +%d hidden", n.Hidden)
	}
	if n.LeftOut > 0 {
		out += fmt.Sprintf(" +%d left out", n.LeftOut)
	}
	var children []string
	for _, child := range n.Children {
		children = append(children, outline(child))
	}
	if children != nil {
		out += " [" + strings.Join(children, ", ") + "]"
	}
	return out
}

// owned creates an object with owners, and returns a reference to it as an owner.
func (a *api) owned(path, kind, name, rest string, owners ...string) string {
	a.Helper()
	created := a.do("POST", path, fmt.Sprintf(`{"metadata":{"name":%q,"ownerReferences":[%s]}%s}`, name, strings.Join(owners, ","), rest))
	meta := created["metadata"].(map[string]any)
	version := created["apiVersion"]
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}`, version, kind, name, meta["uid"])
}

const podSpec = `,"spec":{"containers":[{"name":"c","image":"registry.example.com/c:1"}]}`

// A tree has only what each caller may read by a request of its own. Of the rest it has
// the number.
func TestTreesObeyRights(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	log := newAuditFile(t)
	r := guarded(t, cp, options{server: server.Options{Audit: log.log}})
	const ns = "tree-rights"
	for _, name := range []string{ns, "tree-canary-b"} {
		admin.do("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
	}
	in := func(group, resource string) string { return group + "/namespaces/" + ns + "/" + resource }
	template := `"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"registry.example.com/c:1"}]}}`
	deploy := admin.owned(in("/apis/apps/v1", "deployments"), "Deployment", "web", `,"spec":{"replicas":2,`+template+`}`)
	set := admin.owned(in("/apis/apps/v1", "replicasets"), "ReplicaSet", "web-1", `,"spec":{"replicas":2,`+template+`}`, deploy)
	pod := admin.owned(in("/api/v1", "pods"), "Pod", "canary-pod-a", podSpec, set)
	admin.owned(in("/api/v1", "pods"), "Pod", "canary-pod-b", podSpec, set)
	admin.owned(in("/api/v1", "configmaps"), "ConfigMap", "canary-map", `,"data":{"k":"canary-data"}`, pod)
	admin.owned(in("/api/v1", "secrets"), "Secret", "canary-secret", "", deploy)
	wide := admin.owned("/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRole", "tree-owner", `,"rules":[]`)
	admin.owned(in("/api/v1", "configmaps"), "ConfigMap", "of-wide", "", wide)
	admin.owned("/api/v1/namespaces/tree-canary-b/configmaps", "ConfigMap", "canary-of-wide", "", wide)

	rules := `[{"apiGroups":["apps"],"verbs":["get","list"],"resources":["deployments","replicasets"]}%s]`
	sets := admin.serviceAccount(ns, "sets", fmt.Sprintf(rules, ""), ns)
	one := admin.serviceAccount(ns, "one", fmt.Sprintf(rules, `,{"apiGroups":[""],"verbs":["get"],"resources":["pods"],"resourceNames":["canary-pod-a"]}`), ns)
	deep := admin.serviceAccount(ns, "deep", `[{"apiGroups":[""],"verbs":["list"],"resources":["configmaps"]},{"apiGroups":[""],"verbs":["get"],"resources":["pods"]},{"apiGroups":["rbac.authorization.k8s.io"],"verbs":["get"],"resources":["clusterroles"]}]`, ns)
	roles := admin.serviceAccount(ns, "roles", `[{"apiGroups":["rbac.authorization.k8s.io"],"verbs":["get"],"resources":["clusterroles"]}]`, "")
	admin.do("POST", in("/apis/rbac.authorization.k8s.io/v1", "rolebindings"), `{"metadata":{"name":"roles-here"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"deep-in-`+ns+`"},"subjects":[{"kind":"ServiceAccount","name":"roles","namespace":"`+ns+`"}]}`)

	root, leaf, role := "/apps/v1/deployments/"+ns+"/web?tree=true", "/core/v1/pods/"+ns+"/canary-pod-a?tree=true", "/rbac.authorization.k8s.io/v1/clusterroles/tree-owner?tree=true"
	for _, resource := range []string{"pods", "configmaps", "secrets", "replicasets", "deployments"} {
		if code := r.as("admin-token", "/"+resource).code; code != http.StatusOK { // all are mirrored
			t.Fatal(resource, code)
		}
	}
	for _, c := range []struct {
		name, token, path, want string
		ownersSeen, hiddenAbove int
		mayTell                 []string
	}{
		{"admin", "admin-token", root, "Deployment/web [ReplicaSet/web-1 [Pod/canary-pod-a [ConfigMap/canary-map], Pod/canary-pod-b], Secret/canary-secret]", 0, 0, []string{"canary"}},
		{"sets", sets, root, "Deployment/web +1 hidden [ReplicaSet/web-1 +2 hidden]", 0, 0, nil},
		{"one", one, root, "Deployment/web +1 hidden [ReplicaSet/web-1 +1 hidden [Pod/canary-pod-a +1 hidden]]", 0, 0, []string{"canary-pod-a"}},
		{"admin, up", "admin-token", leaf, "Pod/canary-pod-a [ConfigMap/canary-map]", 2, 0, []string{"canary"}},
		{"one, up", one, leaf, "Pod/canary-pod-a +1 hidden", 2, 0, []string{"canary-pod-a"}},
		{"deep, up", deep, leaf, "Pod/canary-pod-a [ConfigMap/canary-map]", 0, 1, []string{"canary-pod-a", "canary-map"}},
		{"admin, of all namespaces", "admin-token", role, "ClusterRole/tree-owner [ConfigMap/canary-of-wide, ConfigMap/of-wide]", 0, 0, []string{"canary"}},
		{"roles", roles, role, "ClusterRole/tree-owner +2 hidden", 0, 0, nil},
	} {
		for _, neighbours := range []string{"", "&neighbours=true"} {
			tree, a := r.treeOf(c.token, c.path+neighbours)
			if got := outline(tree.Object); got != c.want {
				t.Errorf("%s: %s\n%s", c.name, got, c.want)
			}
			if len(tree.Owners) != c.ownersSeen || tree.HiddenOwners != c.hiddenAbove {
				t.Errorf("%s: %d owners, and %d hidden", c.name, len(tree.Owners), tree.HiddenOwners)
			}
			said := string(a.body)
			for _, word := range c.mayTell {
				said = strings.ReplaceAll(said, word, "")
			}
			if strings.Contains(said, "canary") {
				t.Errorf("%s is told of something that it may not see: %s", c.name, a.body)
			}
		}
	}
	for _, token := range []string{"nobody-token", "wrong", "", "namespaced-user-token"} {
		for _, path := range []string{root, leaf, role} {
			if a := r.as(token, path+"&neighbours=true"); a.code != 401 && a.code != 403 || strings.Contains(string(a.body), "canary-map") {
				t.Errorf("%q %s: %d %s", token, path, a.code, a.body)
			}
		}
	}
	r.must(r.stop())
	for _, e := range parseEvents(t, log.String()) {
		if strings.Contains(e.RequestURI, root) && e.User.Username == "system:serviceaccount:"+ns+":one" && strings.HasSuffix(e.RequestURI, "tree=true") {
			if got, want := e.Annotations["tidings.io/related"], ns+"/Deployment.apps,"+ns+"/Pod,"+ns+"/ReplicaSet.apps"; got != want {
				t.Errorf("the audit log says that %q was shown, not %q", got, want)
			}
			return
		}
	}
	t.Error("the audit log has no event of the tree")
}

// Nothing is mirrored for callers that may not list it.
func TestTreesMirrorNothingForStrangers(t *testing.T) {
	cp := controlplane.Shared(t)
	admin := newAPI(t, cp.AdminConfig())
	r := guarded(t, cp, options{})
	admin.do("POST", "/api/v1/namespaces", `{"metadata":{"name":"tree-mirrored"}}`)
	admin.owned("/api/v1/namespaces/tree-mirrored/configmaps", "ConfigMap", "root", "")
	token := admin.serviceAccount("tree-mirrored", "gets", `[{"apiGroups":[""],"verbs":["get"],"resources":["configmaps"]}]`, "tree-mirrored")
	tree, _ := r.treeOf(token, "/core/v1/configmaps/tree-mirrored/root?tree=true&neighbours=true")
	if i := slices.IndexFunc(tree.Unlooked, func(u relations.Unlooked) bool { return u.Resource == "pods" }); i < 0 || !strings.Contains(tree.Unlooked[i].Why, "may not list") {
		t.Errorf("it is not said that pods were not looked at: %+v", tree.Unlooked)
	}
	var mirrored []string
	for _, resource := range r.mirror.Status().Clusters[0].Resources {
		if !resource.Required {
			mirrored = append(mirrored, resource.Name)
		}
	}
	if slices.ContainsFunc(mirrored, func(name string) bool {
		return strings.HasPrefix(name, "pods") || strings.HasPrefix(name, "replicasets")
	}) {
		t.Errorf("mirrored on behalf of a caller that may not list it: %v", mirrored)
	}
}

func TestTreesAreBounded(t *testing.T) {
	r := start(t, options{})
	put := func(name string, owner types.UID) types.UID {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		if owner != "" {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "any", UID: owner}}
		}
		out, err := r.cluster.Put(cm)
		r.must(err)
		return out.GetUID()
	}
	root := put("root", "")
	for i := range 300 {
		put(fmt.Sprintf("wide-%03d", i), root)
	}
	deep := put("deep-0", "")
	for i := 1; i < 10; i++ {
		deep = put(fmt.Sprint("deep-", i), deep)
	}
	eventually(t, "all are mirrored", func() bool { return len(r.get("/cm").names()) == 311 })
	tree, _ := r.treeOf("", "/core/v1/configmaps/default/root?tree=true")
	if got, left := len(tree.Object.Children), tree.Object.LeftOut; got != 249 || left != 51 {
		t.Errorf("%d children and %d left out", got, left)
	}
	tree, _ = r.treeOf("", "/core/v1/configmaps/default/deep-0?tree=true")
	if got, want := outline(tree.Object), "ConfigMap/deep-0 [ConfigMap/deep-1 [ConfigMap/deep-2 [ConfigMap/deep-3 [ConfigMap/deep-4 [ConfigMap/deep-5 +1 left out]]]]]"; got != want {
		t.Errorf("%s\n%s", got, want)
	}
	tree, _ = r.treeOf("", "/core/v1/configmaps/default/deep-9?tree=true&source=live")
	if len(tree.Owners) != 1 || len(tree.Owners[0].Wrong) != 1 || tree.Owners[0].Name != "any" { // the references have a wrong name
		t.Errorf("owners %+v", tree.Owners)
	}
	for path, want := range map[string]int{
		"/core/v1/configmaps/default/none?tree=true":               404,
		"/core/v1/configmaps?tree=true":                            400,
		"/core/v1/configmaps/default/root?neighbours=true":         400,
		"/core/v1/configmaps/default/root?tree=yes":                400,
		"/core/v1/configmaps/default/root?tree=true&watch=true":    400,
		"/core/v1/configmaps/default/root?tree=true&at=-1m":        400,
		"/core/v1/configmaps/default/root?tree=true&source=live":   200,
		"/core/v1/configmaps/default/root?tree=true&diff=true":     400,
		"/core/v1/configmaps/default/root?tree=false":              200,
		"/core/v1/configmaps/default/root?tree=true&tree=true":     400,
		"/clusters/test/core/v1/configmaps/default/root?tree=true": 200,
	} {
		if a := r.get(path); a.code != want {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}

func TestTreesOfThePast(t *testing.T) {
	r := start(t, remember(t, options{}))
	put := func(name, value string, owner types.UID) (types.UID, string) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
		if owner != "" {
			cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "root", UID: owner}}
		}
		out, err := r.cluster.Put(cm)
		r.must(err)
		return out.GetUID(), out.GetResourceVersion()
	}
	root, _ := put("root", "1", "")
	_, then := put("first", "1", root)
	r.get("/cm")
	r.reach("", "/cm", then)
	r.must(r.cluster.Delete(configMaps, "default", "first"))
	_, now := put("second", "1", root)
	r.reach("", "/cm", now)
	tree, a := r.treeOf("", "/core/v1/configmaps/default/root?tree=true&at="+then)
	if got := outline(tree.Object); got != "ConfigMap/root [ConfigMap/first]" || !strings.Contains(string(a.body), `"moment":{`) {
		t.Errorf("at %s: %s; %s", then, got, a.body)
	}
	tree, _ = r.treeOf("", "/core/v1/configmaps/default/root?tree=true")
	if got := outline(tree.Object); got != "ConfigMap/root [ConfigMap/second]" {
		t.Errorf("now: %s", got)
	}
}
