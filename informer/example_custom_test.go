package informer_test

import (
	"context"
	"fmt"
	"log"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/informertest"
)

// Gadget is the Go type of a custom resource.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              GadgetSpec `json:"spec"`
}

// GadgetSpec is the wanted state of a [Gadget].
type GadgetSpec struct {
	Color string `json:"color"`
}

// DeepCopyObject implements runtime.Object. Usually it is generated.
func (g *Gadget) DeepCopyObject() runtime.Object {
	out := *g
	g.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// gadgets returns a connection to an API server with a gadget.
func gadgets() (conn *cluster.Cluster, stop func()) {
	server, err := informertest.NewServer()
	if err != nil {
		log.Fatal(err)
	}
	err = server.AddResource(metav1.APIResource{Group: "example.com", Version: "v1", Name: "gadgets", Kind: "Gadget", Namespaced: true})
	if err != nil {
		log.Fatal(err)
	}
	_, err = server.Create(&Gadget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Gadget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lamp"},
		Spec:       GadgetSpec{Color: "red"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if conn, err = cluster.New("test", server.Config()); err != nil {
		log.Fatal(err)
	}
	return conn, server.Close
}

// A Go type that is registered in a scheme: the resource follows from the type.
func Example_customResource() {
	conn, stop := gadgets()
	defer stop()
	ctx := context.Background()

	scheme := runtime.NewScheme() // usually filled by the AddToScheme of the type's package
	scheme.AddKnownTypes(schema.GroupVersion{Group: "example.com", Version: "v1"}, &Gadget{})

	inf, err := informer.New[*Gadget](conn, informer.Scheme(scheme))
	if err != nil {
		log.Fatal(err)
	}
	if err := inf.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer inf.Stop(ctx)
	lamp, ok := inf.Get("default", "lamp")
	fmt.Println(ok, lamp.Kind, lamp.Name, lamp.Spec.Color)
	// Output: true Gadget lamp red
}

// A Go type without a scheme: the resource is named. A resource of another kind is
// refused.
func Example_customResourceWithoutScheme() {
	conn, stop := gadgets()
	defer stop()
	ctx := context.Background()

	inf, err := informer.New[*Gadget](conn, informer.Resource("gadgets.example.com"))
	if err != nil {
		log.Fatal(err)
	}
	if err := inf.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer inf.Stop(ctx)
	for _, gadget := range inf.List(informer.Query{}) {
		fmt.Println(gadget.Name, gadget.Spec.Color)
	}

	wrong, err := informer.New[*Gadget](conn, informer.Resource("configmaps"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(wrong.Start(ctx) != nil)
	// Output:
	// lamp red
	// true
}

// An index over a value of the objects.
func ExampleInformer_AddIndex() {
	conn, stop := gadgets()
	defer stop()
	ctx := context.Background()

	inf, err := informer.New[*Gadget](conn, informer.Resource("gadgets.example.com"))
	if err != nil {
		log.Fatal(err)
	}
	byColor, err := inf.AddIndex("color", func(values []string, g *Gadget) []string { return append(values, g.Spec.Color) })
	if err != nil {
		log.Fatal(err)
	}
	if err := inf.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer inf.Stop(ctx)
	fmt.Println(byColor.Get("red")[0].Name, byColor.Values())
	_, err = inf.AddIndex("color", nil)
	fmt.Println(err)
	// Output:
	// lamp [red]
	// gadgets.example.com of cluster test: index "color" exists already
}
