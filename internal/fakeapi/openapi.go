package fakeapi

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// serveOpenAPI serves /openapi/v3 with just enough for kubectl to leave the
// validation of fields to the server: the kinds, and that their patches take
// fieldValidation. There are no schemas.
func (c *Cluster) serveOpenAPI(w http.ResponseWriter, req *http.Request, path string) {
	type object = map[string]any
	paths := object{}
	for _, g := range c.groupVersions() {
		root := "apis/" + g.gv.String()
		if g.gv.Group == "" {
			root = "api/" + g.gv.Version
		}
		at := "/openapi/v3/" + root
		if path != at {
			paths[root] = object{"serverRelativeURL": at}
			continue
		}
		operations, schemas := object{}, object{}
		for _, info := range g.resources {
			if strings.Contains(info.Name, "/") {
				continue
			}
			operations[objectPath(root, info)] = object{"patch": object{
				"responses":                       object{},
				"parameters":                      []object{{"name": "fieldValidation", "in": "query", "schema": object{"type": "string"}}},
				"x-kubernetes-action":             "patch",
				"x-kubernetes-group-version-kind": kindOfInfo(info),
			}}
			schemas[strings.ReplaceAll(g.gv.String(), "/", ".")+"."+info.Kind] = object{
				"type": "object", "x-kubernetes-group-version-kind": []any{kindOfInfo(info)},
			}
		}
		writeJSON(w, runtime.ContentTypeJSON, object{
			"openapi": "3.0.0", "info": object{"title": "Kubernetes", "version": serverVersion.GitVersion},
			"paths": operations, "components": object{"schemas": schemas},
		})
		return
	}
	if path != "/openapi/v3" {
		http.NotFound(w, req)
		return
	}
	writeJSON(w, runtime.ContentTypeJSON, object{"paths": paths})
}

func objectPath(root string, info metav1.APIResource) string {
	if info.Namespaced {
		return "/" + root + "/namespaces/{namespace}/" + info.Name + "/{name}"
	}
	return "/" + root + "/" + info.Name + "/{name}"
}

func kindOfInfo(info metav1.APIResource) map[string]string {
	return map[string]string{"group": info.Group, "version": info.Version, "kind": info.Kind}
}
