package fakeapi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/btree"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tidings-io/tidings/internal/broadcast"
)

// resource is a served resource with its objects and their recent history. The
// fields below the line are guarded by Cluster.mu.
type resource struct {
	gvr        schema.GroupVersionResource
	gvk        schema.GroupVersionKind
	info       metav1.APIResource
	typed      bool // has a Go type in client-go's scheme, unlike a custom resource
	hasStatus  bool // the status is written only through the subresource
	scales     bool // has the scale subresource
	selectable selectable
	changed    broadcast.Signal // fired after every change and when the resource is removed

	// ---

	objects btree.Map[string, *record] // by "namespace/name", etcd's order
	log     []change                   // ascending, at least the newest Options.History
	base    uint64                     // position of log[0] in the sequence of all changes
	floor   uint64                     // changes up to this revision are dropped
	gone    bool
	watches map[*openWatch]struct{}
}

func (r *resource) group() schema.GroupResource { return r.gvr.GroupResource() }

func (r *resource) key(namespace, name string) string {
	if r.info.Namespaced {
		return namespace + "/" + name
	}
	return name
}

// readWriteVerbs are the verbs of an ordinary resource.
var readWriteVerbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

type builtin struct {
	gv         schema.GroupVersion
	kind       string
	plural     string
	short      []string
	namespaced bool
	all        bool // in kubectl's category "all"
	status     bool
}

var builtins = []builtin{
	{corev1.SchemeGroupVersion, "ConfigMap", "configmaps", []string{"cm"}, true, false, false},
	{corev1.SchemeGroupVersion, "Endpoints", "endpoints", []string{"ep"}, true, false, false},
	{corev1.SchemeGroupVersion, "Event", "events", []string{"ev"}, true, false, false},
	{corev1.SchemeGroupVersion, "Namespace", "namespaces", []string{"ns"}, false, false, true},
	{corev1.SchemeGroupVersion, "Node", "nodes", []string{"no"}, false, false, true},
	{corev1.SchemeGroupVersion, "PersistentVolumeClaim", "persistentvolumeclaims", []string{"pvc"}, true, false, true},
	{corev1.SchemeGroupVersion, "PersistentVolume", "persistentvolumes", []string{"pv"}, false, false, true},
	{corev1.SchemeGroupVersion, "Pod", "pods", []string{"po"}, true, true, true},
	{corev1.SchemeGroupVersion, "Secret", "secrets", nil, true, false, false},
	{corev1.SchemeGroupVersion, "ServiceAccount", "serviceaccounts", []string{"sa"}, true, false, false},
	{corev1.SchemeGroupVersion, "Service", "services", []string{"svc"}, true, true, true},
	{appsv1.SchemeGroupVersion, "DaemonSet", "daemonsets", []string{"ds"}, true, true, true},
	{appsv1.SchemeGroupVersion, "Deployment", "deployments", []string{"deploy"}, true, true, true},
	{appsv1.SchemeGroupVersion, "ReplicaSet", "replicasets", []string{"rs"}, true, true, true},
	{appsv1.SchemeGroupVersion, "StatefulSet", "statefulsets", []string{"sts"}, true, true, true},
	{batchv1.SchemeGroupVersion, "CronJob", "cronjobs", []string{"cj"}, true, true, true},
	{batchv1.SchemeGroupVersion, "Job", "jobs", nil, true, true, true},
	{networkingv1.SchemeGroupVersion, "Ingress", "ingresses", []string{"ing"}, true, false, true},
	{policyv1.SchemeGroupVersion, "PodDisruptionBudget", "poddisruptionbudgets", []string{"pdb"}, true, false, true},
	{storagev1.SchemeGroupVersion, "StorageClass", "storageclasses", []string{"sc"}, false, false, false},
	{discoveryv1.SchemeGroupVersion, "EndpointSlice", "endpointslices", nil, true, false, false},
	{coordinationv1.SchemeGroupVersion, "Lease", "leases", nil, true, false, false},
}

func (b builtin) resource() *resource {
	info := metav1.APIResource{
		Name:         b.plural,
		SingularName: strings.ToLower(b.kind),
		Namespaced:   b.namespaced,
		Group:        b.gv.Group,
		Version:      b.gv.Version,
		Kind:         b.kind,
		Verbs:        readWriteVerbs,
		ShortNames:   b.short,
	}
	if b.all {
		info.Categories = []string{"all"}
	}
	r := newResource(info)
	r.typed, r.hasStatus = true, b.status
	r.scales = b.kind == "Deployment" || b.kind == "ReplicaSet" || b.kind == "StatefulSet"
	r.selectable = builtinFields(r.gvk)
	return r
}

func newResource(info metav1.APIResource) *resource {
	gv := schema.GroupVersion{Group: info.Group, Version: info.Version}
	return &resource{
		gvr:     gv.WithResource(info.Name),
		gvk:     gv.WithKind(info.Kind),
		info:    info,
		watches: map[*openWatch]struct{}{},
	}
}

// register adds a resource. It fails if there is one of that name.
func (c *Cluster) register(r *resource) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.resources[r.gvr]; ok {
		return fmt.Errorf("fakeapi: resource %s is already served", r.gvr)
	}
	r.floor = c.rev
	c.resources[r.gvr] = r
	c.kinds[r.gvk] = r
	c.order = append(c.order, r.gvr)
	return nil
}

// AddResource serves a custom resource, as if its CustomResourceDefinition had
// been created. Name, Kind and Version are required; SingularName and Verbs have
// the usual defaults. Field selectors may use the selectable fields, such as
// "spec.color", besides metadata.name and metadata.namespace.
func (c *Cluster) AddResource(info metav1.APIResource, selectableFields ...string) error {
	if info.Name == "" || info.Kind == "" || info.Version == "" {
		return fmt.Errorf("fakeapi: a resource needs a name, a kind and a version, not %q, %q, %q", info.Name, info.Kind, info.Version)
	}
	if info.SingularName == "" {
		info.SingularName = strings.ToLower(info.Kind)
	}
	if len(info.Verbs) == 0 {
		info.Verbs = readWriteVerbs
	}
	r := newResource(info)
	r.selectable = customFields(info.Namespaced, selectableFields)
	return c.register(r)
}

// RemoveResource stops serving a resource, as if its CustomResourceDefinition had
// been deleted: its objects are deleted, open watches get these deletions and end,
// and later requests get 404. It reports whether the resource was served.
func (c *Cluster) RemoveResource(gvr schema.GroupVersionResource) bool {
	c.mu.Lock()
	r, ok := c.resources[gvr]
	if !ok {
		c.mu.Unlock()
		return false
	}
	for _, rec := range r.objects.Values() {
		c.commit(r, watch.Deleted, rec, rec.obj.DeepCopyObject().(Object))
	}
	r.gone = true
	delete(c.resources, gvr)
	delete(c.kinds, r.gvk)
	c.order = slices.DeleteFunc(c.order, func(o schema.GroupVersionResource) bool { return o == gvr })
	c.mu.Unlock()
	r.changed.Notify()
	return true
}

// lookup returns a served resource.
func (c *Cluster) lookup(gvr schema.GroupVersionResource) (*resource, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	r, ok := c.resources[gvr]
	return r, ok
}
