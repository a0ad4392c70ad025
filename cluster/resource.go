package cluster

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one resource of a cluster in one version, as discovery names it.
type Resource struct {
	schema.GroupVersionResource

	Kind       string
	Singular   string
	ShortNames []string
	Categories []string
	Verbs      []string
	Namespaced bool
}

// GVR is the group, version and plural name that requests are made with.
func (r Resource) GVR() schema.GroupVersionResource { return r.GroupVersionResource }

// GVK is the kind of the resource's objects.
func (r Resource) GVK() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// Can says whether the server offers a verb ("list", "watch", …) on the
// resource at all. Whether this user may use it is another question.
func (r Resource) Can(verb string) bool { return slices.Contains(r.Verbs, verb) }

// String is the resource's short full name, "deployments.apps" or "pods".
// [Cluster.Resolve] takes it.
func (r Resource) String() string { return dotted(r.Resource, "", r.Group) }

// Versioned is the name that says the version too, "deployments.v1.apps" or
// "pods.v1". [Cluster.Resolve] takes it.
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
