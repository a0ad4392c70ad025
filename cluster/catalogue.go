package cluster

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// catalogue is what one discovery found. It is never changed once built.
//
// Why not client-go's restmapper: its shortcut expander asks the server again
// for every name and gives up on all short names when a single aggregated API
// is down.
type catalogue struct {
	// all holds every resource of every version, in order of precedence: core
	// first, groups in the server's order, the preferred version first.
	all []Resource
	// failed says which group versions could not be discovered, and why.
	failed map[schema.GroupVersion]error
	// partial wraps failed for callers; nil when everything was discovered.
	partial error
}

// newCatalogue orders what discovery returned. Resources of group versions that
// failed are taken over from the catalogue before, so that an aggregated API
// that is down for a minute is not forgotten.
func newCatalogue(groups []*metav1.APIGroup, lists []*metav1.APIResourceList, failed map[schema.GroupVersion]error, before *catalogue) *catalogue {
	cat := &catalogue{failed: failed}
	byVersion := make(map[string]*metav1.APIResourceList, len(lists))
	for _, l := range lists {
		byVersion[l.GroupVersion] = l
	}
	// The core group leads whatever the server's order, as in kubectl.
	groups = slices.Clone(groups)
	slices.SortStableFunc(groups, func(a, b *metav1.APIGroup) int { return boolOrder(a.Name != "", b.Name != "") })
	for _, g := range groups {
		versions := slices.Clone(g.Versions)
		slices.SortStableFunc(versions, func(a, b metav1.GroupVersionForDiscovery) int {
			return boolOrder(a.Version != g.PreferredVersion.Version, b.Version != g.PreferredVersion.Version)
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
	if before != nil {
		for _, r := range before.all {
			if _, down := failed[r.GroupVersion()]; down && byVersion[r.GroupVersion().String()] == nil {
				cat.all = append(cat.all, r)
			}
		}
	}
	return cat
}

func boolOrder(a, b bool) int {
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

// resolve finds what arg means. A full name always beats a short name, and a
// short name a kind; a group may be cut short ("deploy.app") where no group has
// exactly that name.
func (c *catalogue) resolve(arg string) (Resource, bool) {
	for _, want := range readings(arg) {
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

// reading is one way to understand a resource argument.
type reading struct {
	name, version, group string
	anyGroup             bool
}

// readings lists the ways to understand arg, the likeliest first.
// "a.b.c" is resource a of version b of group c, or of group b.c; "pods.v1" is
// a version of the core group where no group is called v1.
func readings(arg string) []reading {
	name, rest, _ := strings.Cut(strings.ToLower(strings.TrimSpace(arg)), ".")
	if name == "" {
		return nil
	}
	if rest == "" {
		return []reading{{name: name, anyGroup: true}}
	}
	version, group, both := strings.Cut(rest, ".")
	if !both {
		return []reading{{name: name, group: rest}, {name: name, version: rest}}
	}
	ways := []reading{{name: name, group: rest}}
	if version != "" {
		ways = append([]reading{{name: name, version: version, group: group}}, ways...)
	}
	return ways
}

// mirrorable lists what can be listed and watched, one version of each.
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
