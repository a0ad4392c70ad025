package cluster

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is a resource of a cluster in one version, as reported by discovery.
type Resource struct {
	schema.GroupVersionResource

	Kind       string
	Singular   string
	ShortNames []string
	Categories []string
	Verbs      []string
	Namespaced bool
}

// GVR returns the group, version and plural name, which identify it in requests.
func (r Resource) GVR() schema.GroupVersionResource { return r.GroupVersionResource }

// GVK returns the kind of the resource's objects.
func (r Resource) GVK() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// Can reports whether the server supports a verb ("list", "watch", …) for the
// resource. It does not check permissions.
func (r Resource) Can(verb string) bool { return slices.Contains(r.Verbs, verb) }

// String returns the name without the version, like "deployments.apps" or "pods".
// [Cluster.Resolve] accepts it.
func (r Resource) String() string { return dotted(r.Resource, "", r.Group) }

// Versioned returns the name with the version, like "deployments.v1.apps" or
// "pods.v1". [Cluster.Resolve] accepts it.
func (r Resource) Versioned() string { return dotted(r.Resource, r.Version, r.Group) }

func dotted(name, version, group string) string {
	if version != "" {
		name += "." + version
	}
	if group != "" {
		name += "." + group
	}
	return name
}

func newResource(gv schema.GroupVersion, r *metav1.APIResource) Resource {
	return Resource{
		GroupVersionResource: gv.WithResource(r.Name),
		Kind:                 r.Kind,
		Singular:             r.SingularName,
		ShortNames:           r.ShortNames,
		Categories:           r.Categories,
		Verbs:                r.Verbs,
		Namespaced:           r.Namespaced,
	}
}
