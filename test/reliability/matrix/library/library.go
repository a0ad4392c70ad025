// Package library is an informer of the library with its type rubbed off, for the
// rows of the fault matrix. It is a package of its own because the compiler makes
// an engine for each type, which takes a while.
package library

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
)

// Informer is an informer of config maps, or of a custom resource.
type Informer struct {
	Run     func(context.Context) error
	Status  func() informer.Status
	Changed func() <-chan struct{}
	// Version is that of an object, empty if it is not there.
	Version func(namespace, name string) string
	// Objects are all of them, as JSON.
	Objects func(namespace string) ([][]byte, error)
}

// ConfigMaps is an informer of typed objects, which come in protobuf. handle is
// called for each event, with the type it has in the Kubernetes API.
func ConfigMaps(c *cluster.Cluster, handle func(kind, name, version string), opts ...informer.Option) (*Informer, error) {
	return of[*corev1.ConfigMap](c, handle, opts)
}

// Custom is an informer of a resource by name, whose objects come in JSON.
func Custom(c *cluster.Cluster, resource string, handle func(kind, name, version string), opts ...informer.Option) (*Informer, error) {
	return of[*unstructured.Unstructured](c, handle, append(opts, informer.Resource(resource)))
}

func of[T informer.Object](c *cluster.Cluster, handle func(kind, name, version string), opts []informer.Option) (*Informer, error) {
	inf, err := informer.New[T](c, opts...)
	if err != nil {
		return nil, err
	}
	inf.AddHandler(informer.HandlerFunc[T](func(e informer.Event[T]) {
		if e.Type == informer.Synced {
			handle("SYNCED", "", "")
			return
		}
		handle(e.Type.String(), e.Object.GetName(), e.Object.GetResourceVersion())
	}))
	return &Informer{
		Run: inf.Run, Status: inf.Status, Changed: inf.StatusChanged,
		Version: func(namespace, name string) string {
			o, ok := inf.Get(namespace, name)
			if !ok {
				return ""
			}
			return o.GetResourceVersion()
		},
		Objects: func(namespace string) (out [][]byte, err error) {
			for _, o := range inf.List(informer.Query{Namespace: namespace}) {
				raw, err := json.Marshal(o)
				if err != nil {
					return nil, err
				}
				out = append(out, raw)
			}
			return out, nil
		},
	}, nil
}
