package demo

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Options says what a [Cluster] holds and how it serves. The zero value is a
// quiet cluster with nothing in it but the four system namespaces, open to
// everybody.
type Options struct {
	// Workload fills the cluster and, while [Cluster.Run] runs, keeps it
	// moving. Nil leaves the cluster empty.
	Workload *Workload

	// History is how many changes of each resource are remembered. A watch
	// or an exact list from before that gets 410 Expired, and a watch whose
	// client reads so slowly that it falls behind it is ended. The default is
	// 10,000, with a Workload 500.
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

	// Allow decides what a user may do. It is asked for every request, so
	// rights may change while the cluster runs, and must be safe to call
	// concurrently. Nil allows everything to everyone except
	// system:anonymous.
	Allow func(User, Access) bool
}

// Cluster is an in-memory cluster. Use [New] to make one.
//
// A cluster that is used inside a testing/synctest bubble has to be made
// inside that bubble.
type Cluster struct {
	opts Options

	mu        sync.RWMutex
	rev       uint64                                    // of the newest write
	resources map[schema.GroupVersionResource]*resource // what is served
	kinds     map[schema.GroupVersionKind]*resource     // the same by kind
	order     []schema.GroupVersionResource             // in order of registration, for discovery
	graceful  bool                                      // pods terminate before they go: a kubelet is simulated

	advanced signal // fired at every write

	faults faults
	sim    *simulation
}

// New makes a cluster. With a workload its initial objects are there when New
// returns; they move only while [Cluster.Run] runs.
func New(opts Options) *Cluster {
	opts.Users = maps.Clone(opts.Users)
	if opts.History <= 0 {
		opts.History = 10_000
		if opts.Workload != nil {
			opts.History = 500
		}
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
	for i, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		ns := &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}
		if w := opts.Workload; w != nil {
			ns.UID, ns.CreationTimestamp = w.systemNamespace(i)
		}
		if _, err := c.Create(ns); err != nil {
			panic("demo: creating a system namespace: " + err.Error()) // impossible in an empty store
		}
	}
	if opts.Workload != nil {
		c.graceful = true
		c.sim = newSimulation(c, *opts.Workload)
		c.Compact() // what has been is history
	}
	return c
}

// signal wakes everybody who waits for something to have changed.
type signal struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait returns a channel that the next fire closes. Take it before looking at
// what may change.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}
