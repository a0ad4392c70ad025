package hostile

import (
	"slices"
)

// rule is a rule of RBAC, which also determines what a caller may see.
type rule struct {
	namespace string // "" is all namespaces
	group     string
	resources []string
	verbs     []string
	names     []string // nil is all
}

var reading = []string{"get", "list", "watch"}

// caller is the sender of requests.
type caller struct {
	name   string
	token  string // "" for an unauthenticated caller
	header string // Authorization, if not "Bearer " and token
	all    bool   // may read everything
	rules  []rule
}

// sees reports whether the caller may read an object by any verb.
func (c *caller) sees(p location) bool {
	return c.all || slices.ContainsFunc(c.rules, func(r rule) bool {
		namespace := p.namespace
		if p.resource == namespaces {
			namespace = p.name // a Namespace is authorized in its own namespace
		}
		return (r.namespace == "" || r.namespace == namespace) && r.group == p.resource.group &&
			slices.Contains(r.resources, p.resource.plural) && (r.names == nil || slices.Contains(r.names, p.name)) &&
			slices.ContainsFunc(r.verbs, func(v string) bool { return slices.Contains(reading, v) })
	})
}

// users returns the callers with a token, except for the administrator.
func users() []*caller {
	core := []string{"configmaps", "pods", "events", "services", "serviceaccounts", "namespaces"}
	apps := []string{"deployments", "replicasets"}
	view := func(namespace string) []rule {
		return []rule{
			{namespace, "", core, reading, nil},
			{namespace, "apps", apps, reading, nil},
			{namespace, customGroup, []string{"gadgets"}, reading, nil},
		}
	}
	return []*caller{
		{name: "viewer", rules: view("team-1")}, // as by the ClusterRole view
		{name: "odd-viewer", rules: view(oddNamespace)},
		{name: "secret-reader", rules: []rule{{"team-2", "", []string{"secrets"}, reading, nil}}},
		{name: "namespace-getter", rules: []rule{{"", "", []string{"namespaces"}, []string{"get"}, nil}}},
		{name: "node-lister", rules: []rule{{"", "", []string{"nodes"}, []string{"list"}, nil}}},
		{name: "narrow", rules: []rule{
			{"team-1", "", []string{"secrets"}, []string{"get"}, []string{"s-0"}},
			{"", "", []string{"configmaps"}, []string{"get"}, []string{"c-0", "c-1"}},
			{"team-0", customGroup, []string{"gadgets"}, []string{"watch"}, []string{"g-1"}},
			{"", customGroup, []string{"sprockets"}, []string{"list"}, nil},
		}},
		{name: "deployer", rules: []rule{{"", "apps", []string{"deployments", "replicasets"}, []string{"get"}, nil}}},
		{name: "nobody"},
	}
}
