//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/tidings-io/tidings/cmd/tidings/internal/demo"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// incident is something that goes wrong in the demo, and how an agent finds out why.
type incident struct {
	name string
	// before is what is there when the agent first looks, and then what is done after that.
	before, then string
	gone         [3]string // what is deleted after that: resource, namespace, name
	solve        func(*detective) string
	cause        string // a part of what it must find
	// kubectl is what one would have kubectl get as YAML to see the same: paths of lists
	// and objects in the API.
	kubectl []string
}

// detective is an agent that follows a script. What it asks for depends on the answers.
type detective struct {
	*agent
	version map[string]string // by resource, before the incident
}

// found returns the first group of an expression in a text.
func (d *detective) found(text, expression string) string {
	d.Helper()
	m := regexp.MustCompile(expression).FindStringSubmatch(text)
	if m == nil {
		d.Fatalf("no %s in:\n%s", expression, text)
	}
	return m[1]
}

type with map[string]any

const podTemplate = `
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: shop, labels: {app: APP}OWNER}
spec: {nodeName: NODE, containers: [{name: main, image: "registry.example.com/shop/APP:1"}]}
status: STATUS
`

func podYAML(name, app, node, owner, status string) string {
	if owner != "" {
		owner = `, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: "` + owner + `", uid: "uid-` + owner + `", controller: true}]`
	}
	return strings.NewReplacer("NAME", name, "APP", app, "NODE", node, "OWNER", owner, "STATUS", status).Replace(podTemplate)
}

func rollout(app, set, image, ready, conditions string) string {
	return strings.NewReplacer("APP", app, "SET", set, "IMAGE", image, "READY", ready, "CONDITIONS", conditions).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: APP, namespace: shop, uid: uid-APP, labels: {app: APP}}
spec: {replicas: 2, selector: {matchLabels: {app: APP}}, template: {metadata: {labels: {app: APP}}, spec: {containers: [{name: main, image: "IMAGE"}]}}}
status: {replicas: 2, readyReplicas: READY, conditions: [CONDITIONS]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: SET, namespace: shop, uid: uid-SET, labels: {app: APP}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: APP, uid: uid-APP, controller: true}]}
spec: {replicas: 2, selector: {matchLabels: {app: APP}}, template: {metadata: {labels: {app: APP}}, spec: {containers: [{name: main, image: "IMAGE"}]}}}
status: {replicas: 2, readyReplicas: READY, conditions: [CONDITIONS]}
`)
}

const waitingStatus = `{phase: Pending, containerStatuses: [{name: main, ready: false, restartCount: COUNT, image: i, imageID: "", state: {waiting: {reason: REASON, message: "MESSAGE"}}LAST}]}`

func waits(reason, message, last string) string {
	return strings.NewReplacer("REASON", reason, "MESSAGE", message, "LAST", last, "COUNT", "7").Replace(waitingStatus)
}

var incidents = []incident{
	{
		name:    "crash loop",
		then:    rollout("orders", "orders-7d", "registry.example.com/shop/orders:3", "0", "") + "---" + podYAML("orders-7d-x1", "orders", "worker-a", "orders-7d", waits("CrashLoopBackOff", "back-off 5m0s restarting failed container", `, lastState: {terminated: {exitCode: 3, reason: Error, message: "cannot open /etc/orders/rules.json"}}`)),
		cause:   "cannot open /etc/orders/rules.json",
		kubectl: []string{"/apis/apps/v1/namespaces/shop/deployments/orders", "/apis/apps/v1/namespaces/shop/replicasets", "/api/v1/namespaces/shop/pods"},
		solve: func(d *detective) string {
			name := d.found(d.call("find", with{"resource": "pods", "namespace": "shop", "filter": "crashloop", "limit": 5}), `\| (orders-\S+) \|`)
			return d.call("tree", with{"resource": "pods", "namespace": "shop", "name": name})
		},
	},
	{
		name:    "bad image",
		then:    podYAML("basket-1", "basket", "worker-a", "", waits("ImagePullBackOff", `Back-off pulling image \"registry.example.com/shop/basket:1.2.typo\": manifest unknown`, "")),
		cause:   "basket:1.2.typo",
		kubectl: []string{"/api/v1/namespaces/shop/pods"},
		solve: func(d *detective) string {
			d.call("count", with{"resource": "pods", "by": []string{"Status"}})
			name := d.found(d.call("find", with{"resource": "pods", "filter": "imagepull", "columns": []string{"Namespace", "Name", "Status"}}), `\| shop \| (\S+) \|`)
			return d.call("tree", with{"resource": "pods", "namespace": "shop", "name": name})
		},
	},
	{
		name: "full node",
		then: podYAML("export-1", "export", "worker-full", "", `{phase: Failed, reason: Evicted, message: "The node was low on resource: ephemeral-storage."}`) + `---
apiVersion: v1
kind: Node
metadata: {name: worker-full}
status: {conditions: [{type: Ready, status: "True"}, {type: DiskPressure, status: "True", reason: KubeletHasDiskPressure, message: "kubelet has disk pressure"}]}
`,
		cause:   "kubelet has disk pressure",
		kubectl: []string{"/api/v1/namespaces/shop/pods", "/api/v1/nodes"},
		solve: func(d *detective) string {
			node := d.found(d.call("find", with{"resource": "pods", "filter": "evicted", "columns": []string{"Namespace", "Name", "Status", ".spec.nodeName", ".status.message"}}), `\| (worker-\S+) \|`)
			return d.call("get", with{"resource": "nodes", "name": node, "fields": []string{`.status.conditions[?(@.status=="True")]`}})
		},
	},
	{
		name:   "broken rollout",
		before: rollout("lookup", "lookup-1", "registry.example.com/shop/lookup:4", "2", ""),
		then: rollout("lookup", "lookup-2", "registry.example.com/shop/lookup:5", "1", `{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: "ReplicaSet lookup-2 has timed out progressing."}`) +
			"---" + podYAML("lookup-2-a", "lookup", "worker-a", "lookup-2", waits("CrashLoopBackOff", "back-off", `, lastState: {terminated: {exitCode: 1, reason: Error}}`)),
		cause:   `lookup:4" → "registry.example.com/shop/lookup:5`,
		kubectl: []string{"/apis/apps/v1/namespaces/shop/deployments", "/apis/apps/v1/namespaces/shop/replicasets", "/api/v1/namespaces/shop/pods"},
		solve: func(d *detective) string {
			d.call("tree", with{"resource": "deploy", "namespace": "shop", "name": "lookup"})
			return d.call("changes", with{"resource": "deploy", "namespace": "shop", "name": "lookup", "since": d.version["deploy"]})
		},
	},
	{
		name:    "deleted ConfigMap",
		before:  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: pricing, namespace: shop}\ndata: {rate: \"1\"}\n",
		gone:    [3]string{"configmaps", "shop", "pricing"},
		then:    podYAML("pricing-1", "pricing", "worker-a", "", waits("CreateContainerConfigError", `configmap \"pricing\" not found`, "")),
		cause:   "DELETED shop/pricing",
		kubectl: []string{"/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/configmaps"},
		solve: func(d *detective) string {
			pod := d.found(d.call("find", with{"resource": "pods", "namespace": "shop", "filter": "configerror"}), `\| (pricing-\S+) \|`)
			name := d.found(d.call("tree", with{"resource": "pods", "namespace": "shop", "name": pod}), `configmap "(\w+)" not found`)
			return d.call("changes", with{"resource": "configmaps", "namespace": "shop", "name": name, "since": d.version["configmaps"]})
		},
	},
	{
		name: "quota",
		then: rollout("reports", "reports-9", "registry.example.com/shop/reports:1", "0", `{type: ReplicaFailure, status: "True", reason: FailedCreate, message: "pods \"reports-9-\" is forbidden: exceeded quota: team-shop, requested: pods=1, used: pods=80, limited: pods=80"}`) + `---
apiVersion: v1
kind: ResourceQuota
metadata: {name: team-shop, namespace: shop}
spec: {hard: {pods: "80"}}
status: {hard: {pods: "80"}, used: {pods: "80"}}
`,
		cause:   `pods: "80"`,
		kubectl: []string{"/apis/apps/v1/namespaces/shop/deployments/reports", "/apis/apps/v1/namespaces/shop/replicasets", "/api/v1/namespaces/shop/resourcequotas"},
		solve: func(d *detective) string {
			quota := d.found(d.call("tree", with{"resource": "deploy", "namespace": "shop", "name": "reports"}), `exceeded quota: (\S+),`)
			return d.call("get", with{"resource": "resourcequotas", "namespace": "shop", "name": quota, "fields": []string{".status"}})
		},
	},
	{
		name: "wrong selector",
		then: podYAML("wishlist-1", "wishlist", "worker-a", "", `{phase: Running, containerStatuses: [{name: main, ready: true, restartCount: 0, image: i, imageID: "", state: {running: {}}}]}`) + `---
apiVersion: v1
kind: Service
metadata: {name: wishlist, namespace: shop}
spec: {selector: {app: wish-list}, ports: [{port: 80}]}
`,
		cause:   "wishlist",
		kubectl: []string{"/api/v1/namespaces/shop/services/wishlist", "/api/v1/namespaces/shop/pods"},
		solve: func(d *detective) string {
			selector := d.found(d.call("get", with{"resource": "services", "namespace": "shop", "name": "wishlist", "fields": []string{".spec.selector"}}), `app: (\S+)`)
			if got := d.call("count", with{"resource": "pods", "namespace": "shop", "labelSelector": "app=" + selector}); !strings.Contains(got, " 0 of ") && !strings.Contains(got, ": 0 of") {
				d.Fatalf("the selector selects: %s", got)
			}
			return d.call("find", with{"resource": "pods", "namespace": "shop", "filter": "wish", "columns": []string{"Name", ".metadata.labels['app']"}})
		},
	},
	{
		name: "missing permission",
		then: `
apiVersion: v1
kind: Event
metadata: {name: sync.1, namespace: shop}
involvedObject: {apiVersion: v1, kind: Pod, name: sync-1, namespace: shop}
type: Warning
reason: SyncFailed
message: 'configmaps is forbidden: User "system:serviceaccount:shop:sync" cannot list resource "configmaps" in API group "" in the namespace "shop"'
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: other, namespace: shop}
subjects: [{kind: ServiceAccount, name: other, namespace: shop}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
`,
		cause:   "0 of 1 match",
		kubectl: []string{"/api/v1/namespaces/shop/events", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings"},
		solve: func(d *detective) string {
			account := d.found(d.call("find", with{"resource": "events", "namespace": "shop", "filter": "forbidden"}), `serviceaccount:shop:(\w+)`)
			return d.call("find", with{"resource": "rolebindings", "namespace": "shop", "columns": []string{"Name", ".subjects[*].name"}, "filter": account})
		},
	},
	{
		name: "pending volume",
		then: podYAML("ledger-0", "ledger", "", "", `{phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: "0/9 nodes are available: pod has unbound immediate PersistentVolumeClaims."}]}`) + `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data-ledger-0, namespace: shop}
spec: {storageClassName: fast-ssd, accessModes: [ReadWriteOnce]}
status: {phase: Pending}
`,
		cause:   "0 of",
		kubectl: []string{"/api/v1/namespaces/shop/pods", "/api/v1/namespaces/shop/persistentvolumeclaims", "/apis/storage.k8s.io/v1/storageclasses"},
		solve: func(d *detective) string {
			d.call("tree", with{"resource": "pods", "namespace": "shop", "name": "ledger-0"})
			class := d.found(d.call("find", with{"resource": "pvc", "namespace": "shop", "filter": "pending", "columns": []string{"Name", "Status", ".spec.storageClassName"}}), `\| Pending \| (\S+)`)
			return d.call("find", with{"resource": "storageclasses", "filter": class})
		},
	},
	{
		name: "expired certificate",
		then: `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: shop-tls, namespace: shop}
spec: {secretName: shop-tls, dnsNames: [shop.example.com]}
status: {notAfter: "2026-01-01T00:00:00Z", conditions: [{type: Ready, status: "False", reason: Expired, message: "Certificate expired on Thu, 01 Jan 2026 00:00:00 UTC; order failed: DNS problem: NXDOMAIN"}]}
`,
		cause:   "NXDOMAIN",
		kubectl: []string{"/apis/cert-manager.io/v1/namespaces/shop/certificates"},
		solve: func(d *detective) string {
			name := d.found(d.call("find", with{"resource": "certificates", "columns": []string{"Namespace", "Name", ".status.notAfter", `.status.conditions[?(@.type=="Ready")].status`}, "sort": ".status.notAfter"}), `\| shop \| (\S+) \| 2026-01-01`)
			return d.call("tree", with{"resource": "certificates", "namespace": "shop", "name": name})
		},
	},
}

// An agent with these tools finds what is wrong in few calls and few tokens.
func TestIncidents(t *testing.T) {
	c := demo.New(demo.Workload{}, fakeapi.Options{}).Cluster // it stands still
	for _, r := range []metav1.APIResource{
		{Group: "", Version: "v1", Kind: "ResourceQuota", Name: "resourcequotas", Namespaced: true},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding", Name: "rolebindings", Namespaced: true},
		{Group: "cert-manager.io", Version: "v1", Kind: "Certificate", Name: "certificates", Namespaced: true},
	} {
		if err := c.AddResource(r); err != nil {
			t.Fatal(err)
		}
	}
	config, stop, err := fakeapi.Serve(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	put := func(documents string, each func(fakeapi.Object)) {
		t.Helper()
		for document := range strings.SplitSeq(documents, "---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---")), &o.Object); err != nil {
				t.Fatalf("%v\n%s", err, document)
			}
			if o.Object == nil {
				continue
			}
			out, err := c.Put(o)
			if err != nil {
				t.Fatalf("%v\n%s", err, document)
			}
			each(out)
		}
	}
	for _, i := range incidents {
		put(i.before, func(fakeapi.Object) {})
	}
	a := tools(t, "--kubeconfig", kubeconfigOf(t, config.Host))
	list, err := a.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	catalogue, _ := json.Marshal(list)
	d := &detective{agent: a, version: map[string]string{}}
	for _, resource := range []string{"deploy", "configmaps"} { // which it has looked at before
		d.version[resource] = d.found(a.call("count", with{"resource": resource}), `version (\d+)`)
	}
	fmtLine := "%-20s %5v %8v %7v %14v\n"
	var report strings.Builder
	known := map[string]int{}
	fmt.Fprintf(&report, fmtLine, "incident", "calls", "bytes", "tokens", "kubectl tokens")
	for _, i := range incidents {
		arrives := func(resource, namespace, name, condition string) {
			t.Helper()
			got := a.call("wait", with{"resource": resource, "namespace": namespace, "name": name, "for": condition})
			if !strings.Contains(got, " holds,") {
				t.Fatal(got)
			}
		}
		put(i.then, func(o fakeapi.Object) {
			arrives(strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)+"s", o.GetNamespace(), o.GetName(), ".metadata.resourceVersion="+o.GetResourceVersion())
		})
		if i.gone[0] != "" {
			if err := c.Delete(schema.GroupVersionResource{Version: "v1", Resource: i.gone[0]}, i.gone[1], i.gone[2]); err != nil {
				t.Fatal(err)
			}
			arrives(i.gone[0], i.gone[1], i.gone[2], "delete")
		}
		a.calls, a.bytes = 0, 0
		found := i.solve(d)
		if !strings.Contains(found, i.cause) {
			t.Errorf("%s: no %q in:\n%s", i.name, i.cause, found)
		}
		tokens := a.bytes / 4
		if a.calls > 6 || tokens > 20_000 {
			t.Errorf("%s: %d calls and %d tokens", i.name, a.calls, tokens)
		}
		fmt.Fprintf(&report, fmtLine, i.name, a.calls, a.bytes, tokens, yamlSize(t, config.Host, i.kubectl, known)/4)
	}
	fmt.Fprintf(&report, "The catalogue takes %d tokens.\n", len(catalogue)/4)
	for _, tool := range slices.Sorted(maps.Keys(a.sizes)) {
		sizes := slices.Sorted(slices.Values(a.sizes[tool]))
		fmt.Fprintf(&report, "%-10s %d answers, bytes: median %d, largest %d\n", tool, len(sizes), sizes[len(sizes)/2], sizes[len(sizes)-1])
	}
	t.Log("\n" + report.String())
}

// yamlSize is the size of what kubectl get -o yaml prints of paths of the API. known has
// those of before.
func yamlSize(t *testing.T, host string, paths []string, known map[string]int) (size int) {
	t.Helper()
	for _, path := range paths {
		if known[path] > 0 { // to write all of it takes time
			size += known[path]
			continue
		}
		resp, err := http.Get(host + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", path, resp.StatusCode, err)
		}
		o := map[string]any{}
		if err := json.Unmarshal(body, &o); err != nil {
			t.Fatal(err)
		}
		items, _ := o["items"].([]any)
		for _, item := range append(items, o) { // kubectl leaves managedFields out
			if meta, ok := item.(map[string]any)["metadata"].(map[string]any); ok {
				delete(meta, "managedFields")
			}
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		known[path] = len(text)
		size += len(text)
	}
	http.DefaultClient.CloseIdleConnections()
	return size
}
