package server_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkTools measures calls of the tools by the SDK's client over HTTP, in a mirror of
// 100,000 pods whose table somebody looks at, and the bytes of the answers. find/cold makes
// the table each time.
func BenchmarkTools(b *testing.B) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	b.Cleanup(stop)
	var first *corev1.Pod
	for p := range samplepods.All(100_000, 1) {
		if p.ResourceVersion = ""; first == nil {
			first = p
		}
		if _, err := c.Put(p); err != nil {
			b.Fatal(err)
		}
	}
	owner := first.OwnerReferences[0]
	deploy, err := c.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: first.Namespace, Name: "web"}})
	if err == nil {
		_, err = c.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: first.Namespace, Name: owner.Name, UID: owner.UID, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deploy.GetUID()}}}})
	}
	if err != nil {
		b.Fatal(err)
	}
	r := serve(b, c, config, options{})
	for r.get("/pods?limit=1").code != http.StatusOK {
	}
	since := r.get("/pods?limit=1").ResourceVersion
	for i := range 200 {
		changed := first.DeepCopy()
		changed.ResourceVersion, changed.Status.Message = "", fmt.Sprint(i)
		if _, err := c.Put(changed); err != nil {
			b.Fatal(err)
		}
		changed.Name, changed.UID = fmt.Sprint("new-", i), ""
		if _, err := c.Put(changed); err != nil {
			b.Fatal(err)
		}
	}
	a := r.agent("", "/mcp")
	measure := func(name, tool string, arguments ...any) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			var sizes []int
			a.TB = b
			a.call(tool, arguments...)
			for b.Loop() {
				begun := time.Now()
				text, failed := a.call(tool, arguments...)
				if took, sizes = append(took, time.Since(begun)), append(sizes, len(text)); failed {
					b.Fatal(text)
				}
			}
			slices.Sort(took)
			slices.Sort(sizes)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
			b.ReportMetric(float64(sizes[len(sizes)/2]), "B-median")
			b.ReportMetric(float64(sizes[len(sizes)-1]), "B-largest")
		})
	}
	a.call("find", "resource", "pods", "columns", []string{"Name", ".spec.nodeName"}) // and the further columns
	measure("find", "find", "resource", "pods")
	measure("find/sorted", "find", "resource", "pods", "sort", "-Restarts")
	measure("find/filtered", "find", "resource", "pods", "filter", "new-1")
	measure("count", "count", "resource", "pods", "by", []string{"Status"})
	measure("count/two", "count", "resource", "pods", "by", []string{"Namespace", "Status"})
	measure("changes", "changes", "resource", "pods", "since", since)
	measure("get", "get", "resource", "pods", "namespace", first.Namespace, "name", first.Name)
	measure("tree", "tree", "resource", "deploy", "namespace", first.Namespace, "name", "web")
	measure("tree/neighbours", "tree", "resource", "deploy", "namespace", first.Namespace, "name", "web", "neighbours", true)
	b.Run("find/cold", func(b *testing.B) {
		a.TB = b
		const times = 3
		begun := time.Now()
		for i := range times { // a field that no table has
			a.call("find", "resource", "pods", "columns", []string{"Name", fmt.Sprintf(".metadata.labels['none-%d']", i)})
		}
		b.ReportMetric(float64(time.Since(begun).Milliseconds())/times, "ms")
	})
}
