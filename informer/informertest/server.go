package informertest

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Object is an object of any kind: of a Go type or unstructured. An object of a custom
// resource must have its kind and apiVersion set.
type Object interface {
	metav1.Object
	runtime.Object
}

// Server is a Kubernetes API server in memory. It serves discovery, get, list, watch,
// create, update, patch, delete and the subresources status and scale, as
// kube-apiserver does, of the usual built-in resources and of those added by
// [Server.AddResource]. All clients are system:admin.
//
// A list is the exact state at its resourceVersion, and a watch from there delivers
// each later change once and in order. There is no server-side apply, which is an
// error, no admission, no controllers, and no validation or defaulting of objects
// beyond their names. The methods are safe for concurrent use.
type Server struct {
	cluster *fakeapi.Cluster
	config  *rest.Config
	stop    func()
}

// NewServer starts a server with the given objects, as [Server.Create] creates them.
// The namespaces default, kube-system, kube-public and kube-node-lease exist. The
// caller must call [Server.Close].
func NewServer(objects ...Object) (*Server, error) {
	s := &Server{cluster: fakeapi.New(fakeapi.Options{})}
	s.config, s.stop = fakeapi.InProcess(s.cluster)
	for _, obj := range objects {
		if _, err := s.Create(obj); err != nil {
			s.Close()
			return nil, fmt.Errorf("informertest.NewServer: create %T %s/%s: %w", obj, obj.GetNamespace(), obj.GetName(), err)
		}
	}
	return s, nil
}

// Close breaks all connections and waits until the server's goroutines have ended.
func (s *Server) Close() { s.stop() }

// Config returns a configuration for clients of the server, like that of a kubeconfig.
// It opens no socket, so only this process can use it.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// AddResource serves a custom resource, like a CustomResourceDefinition. Name (the
// plural), Kind and Version are required; Group and Namespaced are usual.
func (s *Server) AddResource(resource metav1.APIResource) error {
	return s.cluster.AddResource(resource)
}

// Create stores a copy of a new object, of any resource that is served, and returns
// it as stored. Unlike a client's create, it keeps the status, and the namespace need
// not exist. The errors are those of an API server, such as AlreadyExists.
func (s *Server) Create(obj Object) (Object, error) { return s.cluster.Create(obj) }

// Update replaces an object, with its status, and returns it as stored. If obj has a
// resourceVersion that is not the current one, the error is a Conflict. An update that
// changes nothing makes no event.
func (s *Server) Update(obj Object) (Object, error) { return s.cluster.Update(obj) }

// Delete removes an object at once, even if it has finalizers.
func (s *Server) Delete(resource schema.GroupVersionResource, namespace, name string) error {
	return s.cluster.Delete(resource, namespace, name)
}

// Fail makes the next requests of one verb (get, list, watch, create, update, patch or
// delete) for one resource fail with err, which is made by package apierrors. times is
// the number of requests. For an informer note that a list may be a watch: one that
// streams the objects first.
func (s *Server) Fail(times int, verb string, resource schema.GroupVersionResource, err apierrors.APIStatus) {
	s.cluster.Inject(fakeapi.Times(times, fakeapi.On(verb, resource, fakeapi.StatusFault(err))))
}

// BreakWatches breaks the open watches of a resource, as a lost connection does.
func (s *Server) BreakWatches(resource schema.GroupVersionResource) {
	s.cluster.AbortWatches(resource)
}

// Expire forgets all past changes and ends the open watches of a resource with 410
// Expired, so that informers list it again.
func (s *Server) Expire(resource schema.GroupVersionResource) {
	s.cluster.Compact()
	s.cluster.FailWatches(resource, apierrors.NewResourceExpired("too old resource version"))
}

// SetDown takes the server down, as if it had crashed, or up again. While it is down,
// connections are refused. It keeps its objects.
func (s *Server) SetDown(down bool) { s.cluster.SetDown(down) }

// Requests returns the number of requests of one verb for one resource so far.
func (s *Server) Requests(verb string, resource schema.GroupVersionResource) int {
	return s.cluster.Count(verb, resource)
}
