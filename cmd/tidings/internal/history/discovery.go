package history

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Discovery returns what a cluster has served, as far as the history knows it: the
// discovery documents of the Kubernetes API, by path.
func (s *Store) Discovery(cluster string) map[string]any {
	byGroup := map[string]map[string]*metav1.APIResourceList{}
	for _, series := range s.All() {
		of := series.Of
		if of.Cluster != cluster {
			continue
		}
		gv := schema.GroupVersion{Group: of.Group, Version: of.Version}
		if byGroup[of.Group] == nil {
			byGroup[of.Group] = map[string]*metav1.APIResourceList{}
		}
		list := byGroup[of.Group][of.Version]
		if list == nil {
			list = &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
			byGroup[of.Group][of.Version] = list
		}
		// Of a resource that was defined again, the newest series comes last.
		list.APIResources = slices.DeleteFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == of.Resource })
		r := metav1.APIResource{
			Name: of.Resource, SingularName: strings.ToLower(of.Kind), Kind: of.Kind, Namespaced: of.Namespaced,
			Verbs: metav1.Verbs{"get", "list", "watch"},
		}
		if gv.Group == "" || !strings.Contains(gv.Group, ".") || strings.HasSuffix(gv.Group, ".k8s.io") {
			r.ShortNames = ShortNames(of.Resource)
		}
		list.APIResources = append(list.APIResources, r)
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	core := metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{}}
	documents := map[string]any{}
	for group, versions := range byGroup {
		g := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: group}
		for v, list := range versions {
			if group == "" {
				core.Versions = append(core.Versions, v)
				documents["/api/"+v] = list
				continue
			}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: v})
			documents["/apis/"+list.GroupVersion] = list
		}
		if group == "" {
			continue
		}
		slices.SortFunc(g.Versions, func(x, y metav1.GroupVersionForDiscovery) int {
			return version.CompareKubeAwareVersionStrings(y.Version, x.Version)
		})
		g.PreferredVersion = g.Versions[0]
		groups.Groups = append(groups.Groups, g)
		documents["/apis/"+group] = g
	}
	slices.SortFunc(groups.Groups, func(x, y metav1.APIGroup) int { return strings.Compare(x.Name, y.Name) })
	documents["/api"], documents["/apis"] = core, groups
	return documents
}
