package kubeapi_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
)

// TestListsThatAreShared: a cached list is the same as a new one, which an uncompressed
// list is, whatever changes.
func TestListsThatAreShared(t *testing.T) {
	r, c := inMemory(t, mirror.Options{}, server.Options{})
	text := strings.Repeat("some text, ", 500)
	write := func(i int, label string) {
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: []string{"default", "kube-system"}[i%2], Name: fmt.Sprint("c", i), Labels: map[string]string{"is": label}},
			Data:       map[string]string{"v": text + label},
		}
		if _, err := c.Create(cm); err == nil {
			return
		}
		if _, err := c.Update(cm); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 80 {
		write(i, "new")
	}
	forms := []string{
		"application/json", "application/vnd.kubernetes.protobuf", "application/yaml",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
		"application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	}
	queries := []url.Values{{}, {"labelSelector": {"is=new"}}, {"labelSelector": {"is!=new"}}, {"labelSelector": {"is=nothing"}}, {"fieldSelector": {"metadata.name!=c3"}}}
	compare := func(what string) {
		t.Helper()
		for _, path := range []string{"/api/v1/configmaps", "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/none/configmaps"} {
			for _, form := range forms {
				for _, query := range queries {
					q := ask{path: path, query: query, accept: form, header: http.Header{"Accept-Encoding": {"identity"}}}
					plain := r.ours.ask(q)
					q.header = http.Header{"Accept-Encoding": {"gzip"}}
					for range 2 {
						if shared := r.ours.ask(q); shared.code != http.StatusOK || string(shared.body) != string(plain.body) {
							t.Fatalf("%s: %s as %s:\n%d bytes compressed: %.300q\n%d bytes not: %.300q", what, q.url(), form, len(shared.body), shared.body, len(plain.body), plain.body)
						}
					}
				}
			}
		}
	}
	compare("as it was")
	write(7, "old")
	compare("once something has changed")
	if err := c.Delete(corev1.SchemeGroupVersion.WithResource("configmaps"), "default", "c10"); err != nil {
		t.Fatal(err)
	}
	compare("once something is gone")
	before := r.ours.get("/api/v1/configmaps")
	if _, err := c.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "another"}}); err != nil {
		t.Fatal(err)
	}
	after := r.ours.get("/api/v1/configmaps")
	if string(before.body) == string(after.body) || len(before.body) != len(after.body) {
		t.Errorf("the version of the list has not moved: %.100q, then %.100q", before.body, after.body)
	}
	compare("once something else has changed")

	var all sync.WaitGroup
	write(8, "old")
	want := r.ours.ask(ask{path: "/api/v1/configmaps", header: http.Header{"Accept-Encoding": {"identity"}}})
	for range 50 {
		all.Go(func() {
			if got := r.ours.get("/api/v1/configmaps"); string(got.body) != string(want.body) {
				t.Errorf("one of many has got %.100q", got.body)
			}
		})
	}
	all.Wait()
}
