package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
)

// archive takes the place of the API server of a cluster of which there is only the
// history. It answers what that knows: which resources there were. Everything else is
// refused.
type archive struct{ documents map[string]any } // by path

// newArchive returns the archive of a cluster.
func newArchive(store *history.Store, cluster string) archive {
	byGroup := map[string]map[string]*metav1.APIResourceList{}
	for _, series := range store.All() {
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
		if slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == of.Resource }) {
			continue // another epoch, or another namespace
		}
		r := metav1.APIResource{
			Name: of.Resource, SingularName: strings.ToLower(of.Kind), Kind: of.Kind, Namespaced: of.Namespaced,
			Verbs: metav1.Verbs{"get", "list", "watch"},
		}
		if gv.Group == "" || !strings.Contains(gv.Group, ".") || strings.HasSuffix(gv.Group, ".k8s.io") {
			r.ShortNames = history.ShortNames(of.Resource)
		}
		list.APIResources = append(list.APIResources, r)
	}
	groups := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	core := metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions", APIVersion: "v1"}, Versions: []string{}}
	a := archive{map[string]any{"/version": map[string]string{"major": "", "minor": "", "gitVersion": "history"}}}
	for group, versions := range byGroup {
		g := metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: group}
		for v, list := range versions {
			if group == "" {
				core.Versions = append(core.Versions, v)
				a.documents["/api/"+v] = list
				continue
			}
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: list.GroupVersion, Version: v})
			a.documents["/apis/"+list.GroupVersion] = list
		}
		if group == "" {
			continue
		}
		slices.SortFunc(g.Versions, func(x, y metav1.GroupVersionForDiscovery) int {
			return apiversion.CompareKubeAwareVersionStrings(y.Version, x.Version)
		})
		g.PreferredVersion = g.Versions[0]
		groups.Groups = append(groups.Groups, g)
		a.documents["/apis/"+group] = g
	}
	slices.SortFunc(groups.Groups, func(x, y metav1.APIGroup) int { return strings.Compare(x.Name, y.Name) })
	a.documents["/api"], a.documents["/apis"] = core, groups
	return a
}

// RoundTrip implements [http.RoundTripper].
func (a archive) RoundTrip(req *http.Request) (*http.Response, error) {
	path := strings.TrimSuffix(req.URL.Path, "/")
	document, ok := a.documents[path]
	switch {
	case ok && req.Method == http.MethodGet:
		return respond(req, http.StatusOK, document), nil
	case path == "/readyz":
		return respond(req, http.StatusOK, "ok"), nil
	}
	err := apierrors.NewServiceUnavailable("of this cluster there is only the history, and it has no answer to this")
	return respond(req, http.StatusServiceUnavailable, err.Status()), nil
}

// respond returns a response with a value as JSON.
func respond(req *http.Request, code int, value any) *http.Response {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen: the values are of known types
	}
	return &http.Response{
		Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
