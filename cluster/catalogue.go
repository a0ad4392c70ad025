package cluster

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// catalogue is the result of one discovery. It is immutable.
//
// It replaces client-go's restmapper, whose shortcut expander makes requests for
// every name and drops all short names when a single aggregated API is down.
type catalogue struct {
	// all holds every resource in every version, in order of precedence: the core
	// group first, then groups in the server's order, the preferred version first.
	all []Resource
	// failed says which group versions could not be discovered, and why.
	failed map[schema.GroupVersion]error
	// partial wraps failed for callers; nil when everything was discovered.
	partial error
}

// newCatalogue sorts the results of discovery. It copies the resources of group
// versions that failed from the previous catalogue, so that they stay known while
// an aggregated API is down.
func newCatalogue(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, previous *catalogue) *catalogue {
	cat := &catalogue{failed: failed}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	// The core group is first in any case, as in kubectl.
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b *metav1.APIGroup) int { return compareBool(a.Name != "", b.Name != "") })
	for _, g := range groups {
		versions := slices.Clone(g.Versions)
		slices.SortStableFunc(versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return compareBool(a.Version != g.PreferredVersion.Version, b.Version != g.PreferredVersion.Version)
		})
		for _, v := range versions {
			gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
			list := byVersion[gv.String()]
			if list == nil {
				continue
			}
			for i := range list.APIResources {
				r := &list.APIResources[i]
				if r.Name == "" || strings.Contains(r.Name, "/") { // a subresource
					continue
				}
				cat.all = append(cat.all, newResource(gv, r))
			}
		}
	}
	if previous != nil {
		for _, r := range previous.all {
			if _, down := failed[r.GroupVersion()]; down && byVersion[r.GroupVersion().String()] == nil {
				cat.all = append(cat.all, r)
			}
		}
	}
	return cat
}

// compareBool orders false before true.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func (c *catalogue) first(match func(Resource) bool) (Resource, bool) {
	if i := slices.IndexFunc(c.all, match); i >= 0 {
		return c.all[i], true
	}
	return Resource{}, false
}

// resolve returns the resource that arg names. A full name has precedence over a
// short name, and a short name over a kind. A group may be abbreviated
// ("deploy.app") if no group has exactly that name.
func (c *catalogue) resolve(arg string) (Resource, bool) {
	for _, want := range interpretations(arg) {
		for _, group := range []func(Resource) bool{
			func(r Resource) bool { return want.anyGroup || r.Group == want.group },
			func(r Resource) bool { return want.group != "" && strings.HasPrefix(r.Group, want.group) },
		} {
			for _, name := range []func(Resource) bool{
				func(r Resource) bool { return r.Resource == want.name || r.Singular == want.name },
				func(r Resource) bool { return slices.Contains(r.ShortNames, want.name) },
				func(r Resource) bool { return strings.ToLower(r.Kind) == want.name },
			} {
				if r, ok := c.first(func(r Resource) bool {
					return group(r) && name(r) && (want.version == "" || r.Version == want.version)
				}); ok {
					return r, true
				}
			}
		}
	}
	return Resource{}, false
}

// interpretation is one possible meaning of a resource argument.
type interpretation struct {
	name, version, group string
	anyGroup             bool
}

// interpretations lists the possible meanings of arg in order of precedence.
// "a.b.c" is resource a in version b of group c, or in group b.c. "pods.v1" is in
// version v1 of the core group if there is no group v1.
func interpretations(arg string) []interpretation {
	name, rest, _ := strings.Cut(strings.ToLower(strings.TrimSpace(arg)), ".")
	if name == "" {
		return nil
	}
	if rest == "" {
		return []interpretation{{name: name, anyGroup: true}}
	}
	version, group, both := strings.Cut(rest, ".")
	if !both {
		return []interpretation{{name: name, group: rest}, {name: name, version: rest}}
	}
	meanings := []interpretation{{name: name, group: rest}}
	if version != "" {
		meanings = append([]interpretation{{name: name, version: version, group: group}}, meanings...)
	}
	return meanings
}

// mirrorable returns the resources that can be listed and watched, each in one
// version.
func (c *catalogue) mirrorable() []Resource {
	var out []Resource
	seen := make(map[schema.GroupResource]bool)
	for _, r := range c.all {
		if gr := r.GroupResource(); !seen[gr] && r.Can("list") && r.Can("watch") {
			seen[gr] = true
			out = append(out, r)
		}
	}
	return out
}
