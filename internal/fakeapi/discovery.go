package fakeapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// serverVersion is the release that the server imitates.
var serverVersion = version.Info{
	Major: "1", Minor: "36",
	GitVersion: "v1.36.0+tidings-demo", GitTreeState: "clean",
	GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64",
}

// aggregatedType is the content type of aggregated discovery.
const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// served returns the served resources in order: core first, then the groups as
// they were registered.
func (c *Cluster) served() []*resource {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := make([]*resource, 0, len(c.order))
	for _, gvr := range c.order {
		out = append(out, c.resources[gvr])
	}
	return out
}

// groupVersion is one version of a group with its resources.
type groupVersion struct {
	gv        schema.GroupVersion
	resources []metav1.APIResource // subresources follow their parents
}

// groupVersions returns the served resources by group and version.
func (c *Cluster) groupVersions() []groupVersion {
	var out []groupVersion
	add := func(gv schema.GroupVersion, infos ...metav1.APIResource) {
		i := slices.IndexFunc(out, func(g groupVersion) bool { return g.gv == gv })
		if i < 0 {
			i = len(out)
			out = append(out, groupVersion{gv: gv})
		}
		out[i].resources = append(out[i].resources, infos...)
	}
	for _, r := range c.served() {
		add(r.gvr.GroupVersion(), r.info)
		sub := r.info
		sub.Verbs = metav1.Verbs{"get", "patch", "update"}
		sub.ShortNames, sub.Categories, sub.SingularName = nil, nil, ""
		if r.scales {
			scale := sub
			scale.Name += "/scale"
			scale.Group, scale.Version, scale.Kind = "autoscaling", "v1", "Scale"
			add(r.gvr.GroupVersion(), scale)
		}
		if r.hasStatus {
			sub.Name += "/status"
			add(r.gvr.GroupVersion(), sub)
		}
	}
	for _, r := range reviews {
		add(r.gvr.GroupVersion(), metav1.APIResource{
			Name: r.gvr.Resource, SingularName: strings.ToLower(r.kind), Kind: r.kind,
			Group: r.gvr.Group, Version: r.gvr.Version, Verbs: metav1.Verbs{"create"},
		})
	}
	return out
}

func (c *Cluster) serveRoot(w http.ResponseWriter, req *http.Request) {
	paths := []string{"/api", "/api/v1", "/apis"}
	for _, g := range c.groupVersions() {
		if g.gv.Group != "" {
			paths = append(paths, "/apis/"+g.gv.Group, "/apis/"+g.gv.String())
		}
	}
	paths = append(paths, "/healthz", "/livez", "/readyz", "/version")
	slices.Sort(paths)
	writeJSON(w, runtime.ContentTypeJSON, metav1.RootPaths{Paths: slices.Compact(paths)})
}

func serveVersion(w http.ResponseWriter) {
	writeJSON(w, runtime.ContentTypeJSON, serverVersion)
}

func writeJSON(w http.ResponseWriter, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-cache, private")
	_ = json.NewEncoder(w).Encode(v) // only the connection can fail
}

// serveDiscovery answers /api, /apis and what is below them.
func (c *Cluster) serveDiscovery(w http.ResponseWriter, req *http.Request, path string) {
	gvs := c.groupVersions()
	if path == "/api" || path == "/apis" {
		legacy := path == "/api"
		gvs = slices.DeleteFunc(gvs, func(g groupVersion) bool { return (g.gv.Group == "") != legacy })
		switch {
		case wantsAggregated(req):
			writeJSON(w, aggregatedType, aggregate(gvs))
		case legacy:
			c.write(w, req, &metav1.APIVersions{
				TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
				Versions: []string{"v1"},
				ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
					{ClientCIDR: "0.0.0.0/0", ServerAddress: req.Host},
				},
			})
		default:
			c.write(w, req, &metav1.APIGroupList{
				TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
				Groups:   groups(gvs),
			})
		}
		return
	}
	if group, ok := strings.CutPrefix(path, "/apis/"); ok && !strings.Contains(group, "/") {
		for _, g := range groups(gvs) {
			if g.Name == group {
				g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				c.write(w, req, &g)
				return
			}
		}
	}
	for _, g := range gvs {
		if path == "/apis/"+g.gv.String() || g.gv.Group == "" && path == "/api/"+g.gv.Version {
			list := &metav1.APIResourceList{
				TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
				GroupVersion: g.gv.String(),
				APIResources: g.resources,
			}
			for i := range list.APIResources {
				if info := &list.APIResources[i]; info.Group == g.gv.Group && info.Version == g.gv.Version {
					info.Group, info.Version = "", "" // implied by the list
				}
			}
			c.write(w, req, list)
			return
		}
	}
	http.NotFound(w, req)
}

// write sends an object of metav1 in the format the client prefers.
func (c *Cluster) write(w http.ResponseWriter, req *http.Request, obj runtime.Object) {
	f, err := negotiate(req, shape{typed: true})
	if err != nil {
		writeStatus(w, req, err)
		return
	}
	f.write(w, http.StatusOK, obj)
}

func groups(gvs []groupVersion) []metav1.APIGroup {
	var out []metav1.APIGroup
	for _, g := range gvs {
		if g.gv.Group == "" {
			continue
		}
		i := slices.IndexFunc(out, func(o metav1.APIGroup) bool { return o.Name == g.gv.Group })
		if i < 0 {
			i = len(out)
			out = append(out, metav1.APIGroup{Name: g.gv.Group})
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: g.gv.String(), Version: g.gv.Version}
		out[i].Versions = append(out[i].Versions, v)
		out[i].PreferredVersion = out[i].Versions[0]
	}
	return out
}

func wantsAggregated(req *http.Request) bool {
	for _, clause := range goautoneg.ParseAccept(req.Header.Get("Accept")) {
		p := clause.Params
		switch {
		case clause.Type != "application" || clause.SubType != "json":
		case p["as"] == "":
			return false // the older form is preferred
		case p["g"] == "apidiscovery.k8s.io" && p["v"] == "v2" && p["as"] == "APIGroupDiscoveryList":
			return true
		}
	}
	return false
}

func aggregate(gvs []groupVersion) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
	}
	for _, g := range gvs {
		i := slices.IndexFunc(list.Items, func(o apidiscoveryv2.APIGroupDiscovery) bool { return o.Name == g.gv.Group })
		if i < 0 {
			i = len(list.Items)
			list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.gv.Group}})
		}
		v := apidiscoveryv2.APIVersionDiscovery{Version: g.gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, info := range g.resources {
			scope := apidiscoveryv2.ScopeCluster
			if info.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			kind := &metav1.GroupVersionKind{Group: info.Group, Version: info.Version, Kind: info.Kind}
			if _, sub, ok := strings.Cut(info.Name, "/"); ok {
				parent := &v.Resources[len(v.Resources)-1]
				parent.Subresources = append(parent.Subresources,
					apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: info.Verbs})
				continue
			}
			v.Resources = append(v.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: info.Name, ResponseKind: kind, Scope: scope, SingularResource: info.SingularName,
				Verbs: info.Verbs, ShortNames: info.ShortNames, Categories: info.Categories,
			})
		}
		list.Items[i].Versions = append(list.Items[i].Versions, v)
	}
	return list
}
