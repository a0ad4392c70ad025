package kubeapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// The requests of kubectl get are answered as by the API server, except for the
// descriptions of the columns, which are from another version of Kubernetes.
func TestTables(t *testing.T) {
	cp := controlplane.Shared(t)
	pods := append([]corev1.Pod(nil), samplepods.Load().Items[:40]...)
	for i := range pods {
		pods[i].Namespace, pods[i].Name = "tables", fmt.Sprintf("p-%02d", i)
		pods[i].Finalizers, pods[i].DeletionTimestamp, pods[i].OwnerReferences = nil, nil, nil
		pods[i].Status.Phase = []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}[i%3]
	}
	if err := samplepods.Create(t.Context(), cp.AdminConfig(), pods, 8); err != nil {
		t.Fatal(err)
	}
	if err := samplepods.WriteStatus(t.Context(), cp.AdminConfig(), pods, 8); err != nil {
		t.Fatal(err)
	}
	r := start(t, cp.AdminConfig(), mirror.Options{}, server.Options{})
	post(t, r.theirs, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "kites.tables.example.com"}, "spec": {
		"group": "tables.example.com", "scope": "Namespaced", "names": {"plural": "kites", "singular": "kite", "kind": "Kite"},
		"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			"additionalPrinterColumns": [{"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}, {"name": "Tail", "type": "integer", "jsonPath": ".spec.tail", "priority": 1}, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]}]}}`)
	post(t, r.theirs, "/apis/tables.example.com/v1/namespaces/tables/kites", `{"apiVersion": "tables.example.com/v1", "kind": "Kite", "metadata": {"name": "k"}, "spec": {"colour": "red", "tail": 7}}`)

	eventually(t, "the mirror knows of kites", func() bool { return r.ours.get("/apis/tables.example.com/v1/kites").code == http.StatusOK })
	for _, path := range []string{
		"/api/v1/namespaces/tables/pods", "/api/v1/namespaces/tables/pods?limit=7", "/api/v1/namespaces/tables/pods/p-01", "/api/v1/namespaces/tables/pods?fieldSelector=status.phase=Failed", "/api/v1/namespaces/tables/pods?labelSelector=nothing",
		"/apis/tables.example.com/v1/kites", "/apis/tables.example.com/v1/namespaces/tables/kites/k",
		"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "/apis/rbac.authorization.k8s.io/v1/clusterroles?limit=5", "/api/v1/namespaces", "/apis/apiregistration.k8s.io/v1/apiservices",
	} {
		for _, include := range []string{"", "None", "Metadata", "Object"} {
			for _, version := range []string{"v1", "v1beta1"} {
				q := ask{path: path, accept: strings.Replace(asTable, "v=v1", "v="+version, 1)}
				if include != "" {
					q.path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "includeObject=" + include
				}
				difference := ""
				for range 5 { // ages change from one second to the next
					want, have := tableOf(t, r.theirs.ask(q)), tableOf(t, r.ours.ask(q))
					if difference = cmp.Diff(want, have); difference == "" {
						break
					}
				}
				if difference != "" {
					t.Errorf("%s %s: want -, have +\n%s", q.path, q.accept, difference)
				}
			}
		}
	}
}

// tableOf decodes a Table without what may differ.
func tableOf(t *testing.T, a answer) map[string]any {
	t.Helper()
	if a.code != http.StatusOK {
		t.Fatal(a)
	}
	var table map[string]any
	if err := json.Unmarshal(a.body, &table); err != nil {
		t.Fatal(err)
	}
	columns, _ := table["columnDefinitions"].([]any)
	for _, c := range columns {
		delete(c.(map[string]any), "description")
	}
	meta, _ := table["metadata"].(map[string]any)
	delete(meta, "resourceVersion") // of a moment
	delete(meta, "continue")
	return table
}

// A watch sends the columns once, and a row for each change.
func TestTablesOfAWatch(t *testing.T) {
	cp := controlplane.Shared(t)
	r := start(t, cp.AdminConfig(), mirror.Options{}, server.Options{})
	post(t, r.theirs, "/api/v1/namespaces/team-a/configmaps", `{"metadata": {"name": "watched"}, "data": {"a": "b"}}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.ours.config.Host+"/api/v1/namespaces/team-a/configmaps?watch=true&resourceVersion=0&fieldSelector=metadata.name=watched", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", asTable)
	resp, err := r.ours.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	for i, want := range []string{"ADDED", "MODIFIED"} {
		var e struct {
			Type   string
			Object metav1.Table
		}
		if err := events.Decode(&e); err != nil {
			t.Fatal(err)
		}
		cells := e.Object.Rows[0].Cells
		if e.Type != want || len(cells) != 3 || cells[0] != "watched" || cells[1] != float64(i+1) || (len(e.Object.ColumnDefinitions) == 3) != (i == 0) {
			t.Errorf("%+v", e)
		}
		if i == 0 {
			write(t, r.theirs, http.MethodPut, "/api/v1/namespaces/team-a/configmaps/watched", `{"metadata": {"name": "watched"}, "data": {"a": "b", "c": "d"}}`)
		}
	}
}

// Only the first frame of a watch has the columns, even if bookmarks come between the
// events.
func TestTablesOfAWatchWithBookmarks(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{Kubernetes: kubeapi.Options{BookmarkEvery: time.Millisecond}})
	put(t, c, "a", "0")
	for round := range 5 {
		w := watchEventsAs(t, r.ours, configMaps+"?watch=1&resourceVersion=0&allowWatchBookmarks=true", asTable)
		seen := map[string]int{}
		for first := true; seen["MODIFIED"] < 20 || seen["BOOKMARK"] < 20; first = false {
			e := w.next()
			kind := e.Get("type").Str
			if seen[kind]++; e.Get("object.columnDefinitions").IsArray() != first {
				t.Fatalf("%v: %s", seen, e)
			}
			if kind != "BOOKMARK" {
				put(t, c, "a", fmt.Sprint(round, kind, seen[kind]))
			}
		}
		w.body.Close()
	}
}

func post(t *testing.T, a *api, path, body string) {
	t.Helper()
	write(t, a, http.MethodPost, path, body)
}

// write writes to an API server, as soon as it knows of the resource.
func write(t *testing.T, a *api, method, path, body string) {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(t.Context(), method, a.config.Host+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := a.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		switch {
		case resp.StatusCode < 300 || resp.StatusCode == http.StatusConflict:
			return
		case resp.StatusCode != http.StatusNotFound:
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(path, "is not served")
		}
	}
}
