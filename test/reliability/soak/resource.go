package soak

import "net/url"

// resource is a resource that is changed and checked.
type resource struct {
	group, version, plural string
	stored                 string // prefix of its keys in etcd, after /registry/
}

var (
	pods        = resource{"", "v1", "pods", "pods"}
	configMaps  = resource{"", "v1", "configmaps", "configmaps"}
	deployments = resource{"apps", "v1", "deployments", "deployments"}
	replicaSets = resource{"apps", "v1", "replicasets", "replicasets"}
	widgets     = resource{"soak.tidings.io", "v1", "widgets", "soak.tidings.io/widgets"}

	resources = []resource{pods, configMaps, deployments, replicaSets, widgets}
)

func (r resource) String() string { return r.plural }

// path is that of the Kubernetes API.
func (r resource) path(query url.Values) string {
	base := "/api/" + r.version
	if r.group != "" {
		base = "/apis/" + r.group + "/" + r.version
	}
	return base + "/" + r.plural + "?" + query.Encode()
}

// own is the path among the server's own routes.
func (r resource) own(query url.Values) string {
	group := r.group
	if group == "" {
		group = "core"
	}
	return "/" + group + "/" + r.version + "/" + r.plural + "?" + query.Encode()
}

// thing is the checked part of an object.
type thing struct {
	Kind     string `json:"kind"`
	Code     int    `json:"code"` // of a Status
	Message  string `json:"message"`
	Metadata struct {
		Namespace       string `json:"namespace"`
		Name            string `json:"name"`
		ResourceVersion uint64 `json:"resourceVersion,string"`
	} `json:"metadata"`
}

func (t thing) key() string { return keyOf(t.Metadata.Namespace, t.Metadata.Name) }

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
