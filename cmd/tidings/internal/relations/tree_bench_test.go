package relations

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/samplepods"
)

// BenchmarkTree draws the tree of a Deployment with 50 pods, of 100,000 in the mirror.
func BenchmarkTree(b *testing.B) {
	c := fakeapi.New(fakeapi.Options{})
	config, stop := fakeapi.InProcess(c)
	defer stop()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	var set metav1.OwnerReference
	namespace := ""
	for p := range samplepods.All(100_000, 1) {
		if namespace == "" {
			namespace, set = p.Namespace, p.OwnerReferences[0]
		}
		p.ResourceVersion = ""
		_, err := c.Put(p)
		must(err)
	}
	deploy, err := c.Put(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}})
	must(err)
	_, err = c.Put(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: set.Name, UID: set.UID, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: deploy.GetUID()},
	}}})
	must(err)
	m, err := mirror.New(mirror.Options{Logger: slog.New(slog.DiscardHandler)})
	must(err)
	defer func() { _ = m.Close(context.Background()) }()
	must(m.Set(b.Context(), map[string]*rest.Config{"test": config}))
	cluster, err := m.Cluster("test")
	must(err)
	resource, err := cluster.ResourceFor(b.Context(), schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	must(err)
	q, err := read.NewQuery(read.Params{Cluster: cluster, Resource: resource.GVR(), Verb: read.Get, Namespace: namespace, Name: "web"})
	must(err)
	must(q.Bind(resource))
	reader := &Reader{Reads: read.New(read.Options{})}
	pods, err := cluster.ResourceFor(b.Context(), schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	must(err)
	for { // until the mirror has them
		if _, err := cluster.Ready(b.Context(), pods, ""); err == nil {
			break
		}
	}
	for _, neighbours := range []bool{false, true} {
		b.Run(fmt.Sprintf("neighbours=%v", neighbours), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o, _, err := reader.Reads.Get(b.Context(), q, read.Any, 0)
				if err != nil {
					b.Fatal(err)
				}
				tree, err := reader.Tree(b.Context(), q, o, time.Now(), Options{Neighbours: neighbours})
				if err != nil {
					b.Fatal(err)
				}
				if len(tree.Object.Children) != 1 || len(tree.Object.Children[0].Children) != 50 {
					b.Fatalf("%+v", tree)
				}
			}
		})
	}
}
