package fakeapi_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestDiscovery(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.addWidgets()
		client := discovery.NewDiscoveryClientForConfigOrDie(r.config)
		version, err := client.ServerVersion()
		r.must(err)
		if !strings.HasPrefix(version.GitVersion, "v1.") {
			r.Errorf("version %+v", version)
		}
		// Both forms of discovery tell the same.
		var forms [2]string
		for i, legacy := range []bool{false, true} {
			client.UseLegacyDiscovery = legacy
			r.cluster.ResetCounts()
			_, lists, err := client.ServerGroupsAndResources()
			r.must(err)
			requests := r.cluster.Requests()[fakeapi.RequestKind{Verb: "get"}]
			if !legacy && requests != 2 {
				r.Errorf("aggregated discovery took %d requests", requests)
			}
			var lines []string
			for _, list := range lists {
				for _, info := range list.APIResources {
					if strings.Contains(info.Name, "/") {
						info.SingularName = "" // client-go takes the parent's from the aggregated form
					}
					lines = append(lines, strings.Join([]string{list.GroupVersion, info.Name, info.SingularName, info.Kind, strings.Join(info.ShortNames, ","), strings.Join(info.Categories, ","), strings.Join(info.Verbs, ",")}, " "))
				}
			}
			slices.Sort(lines)
			forms[i] = strings.Join(lines, "\n")
		}
		if forms[0] != forms[1] {
			r.Errorf("aggregated discovery:\n%s\nlegacy discovery:\n%s", forms[0], forms[1])
		}
		for _, want := range []string{
			"apps/v1 deployments deployment Deployment deploy all create,delete,deletecollection,get,list,patch,update,watch",
			"v1 pods pod Pod po all create,", "v1 pods/status  Pod   get,patch,update",
			"example.com/v1 widgets widget Widget wd  create,",
		} {
			if !strings.Contains(forms[0], want) {
				r.Errorf("missing %q in\n%s", want, forms[0])
			}
		}
		groups, err := restmapper.GetAPIGroupResources(client)
		r.must(err)
		mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), client, nil)
		gvr, err := mapper.ResourceFor(widgetsGVR.GroupVersion().WithResource("wd"))
		if err != nil || gvr != widgetsGVR {
			r.Errorf("short name: %v, %v", gvr, err)
		}
		for _, path := range []string{"/healthz", "/livez", "/readyz", "/apis/apps", "/"} {
			_, err := client.RESTClient().Get().AbsPath(path).DoRaw(r.ctx)
			r.must(err)
		}
		if _, err := client.ServerResourcesForGroupVersion("example.com/v2"); err == nil {
			r.Error("a version that is not there is discovered")
		}
	})
}
