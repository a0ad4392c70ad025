package fakeapi

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/internal/broadcast"
)

// Options configures a [Cluster]. With the zero value, the cluster contains only
// the four system namespaces and is open to everybody.
type Options struct {
	// History is the number of changes to keep for each resource. A watch or
	// an exact list from before that gets 410 Expired, and a watch ends if its
	// client reads so slowly that it falls behind. The default is 10,000.
	History int

	// BookmarkInterval is the time between the bookmarks of a watch that
	// asked for them. The default is one minute.
	BookmarkInterval time.Duration

	// WatchTimeout ends watches that name no timeoutSeconds. The default is
	// 30 minutes; negative means never.
	WatchTimeout time.Duration

	// NoWatchList makes the server answer sendInitialEvents with 422, as
	// servers without the WatchList feature do.
	NoWatchList bool

	// Users maps bearer tokens to users. With a nil map everybody is
	// system:admin. Otherwise an unknown token gets 401, and a request
	// without a token is made by system:anonymous.
	Users map[string]User

	// Allow authorizes requests. It is called for every request, so rights
	// may change while the cluster runs, and must be safe for concurrent use.
	// Nil allows everything to everybody except system:anonymous.
	Allow func(User, Access) bool

	// SystemNamespace completes each of the four system namespaces before it
	// is stored, for instance with a fixed uid. Nil leaves them as they are.
	SystemNamespace func(*corev1.Namespace)

	// GracefulPods makes a DELETE request mark a pod that runs on a node, as
	// a kube-apiserver does. The simulated kubelet removes the pod with
	// [Cluster.Delete]. Otherwise the request removes it at once.
	GracefulPods bool
}

// Cluster is an in-memory cluster. Use [New] to make one.
//
// A cluster used inside a testing/synctest bubble must be made inside that
// bubble.
type Cluster struct {
	opts Options

	mu        sync.RWMutex
	rev       uint64                                    // of the newest write
	resources map[schema.GroupVersionResource]*resource // served
	kinds     map[schema.GroupVersionKind]*resource     // the same by kind
	order     []schema.GroupVersionResource             // in order of registration, for discovery

	advanced broadcast.Signal // fired at every write

	faults faults
}

// New makes a cluster.
func New(opts Options) *Cluster {
	opts.Users = maps.Clone(opts.Users)
	if opts.History <= 0 {
		opts.History = 10_000
	}
	if opts.BookmarkInterval <= 0 {
		opts.BookmarkInterval = time.Minute
	}
	if opts.WatchTimeout == 0 {
		opts.WatchTimeout = 30 * time.Minute
	}
	c := &Cluster{
		opts:      opts,
		resources: map[schema.GroupVersionResource]*resource{},
		kinds:     map[schema.GroupVersionKind]*resource{},
	}
	for _, b := range builtins {
		c.register(b.resource())
	}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if opts.SystemNamespace != nil {
			opts.SystemNamespace(ns)
		}
		if _, err := c.Create(ns); err != nil {
			panic("fakeapi: creating a system namespace: " + err.Error()) // impossible in an empty store
		}
	}
	return c
}
