package history

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/broadcast"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// RecordingOptions configure a [Recording].
type RecordingOptions struct {
	// Secrets says whether Secrets are recorded.
	Secrets bool
	// Thin is the time within which at most one version of an object is kept, for
	// resources named as in "leases.coordination.k8s.io".
	Thin map[string]time.Duration
}

// Recording records the informers of a mirror in a store.
type Recording struct {
	store *Store
	opts  RecordingOptions

	mu      sync.Mutex
	uids    map[*mirror.Cluster]string
	running map[*mirror.Informer]*recorded

	identified broadcast.Signal // notified when another uid is known
}

var _ mirror.Journal = (*Recording)(nil)

// NewRecording returns a recording for [mirror.Options.Journal].
func NewRecording(s *Store, opts RecordingOptions) *Recording {
	return &Recording{store: s, opts: opts, uids: map[*mirror.Cluster]string{}, running: map[*mirror.Informer]*recorded{}}
}

// Store is the store of the recording.
func (rec *Recording) Store() *Store { return rec.store }

// Thinned returns the time within which at most one version of an object of a resource is
// kept; 0 means that every version is.
func (rec *Recording) Thinned(r cluster.Resource) time.Duration {
	return rec.opts.Thin[r.GroupResource().String()]
}

// Records reports whether a resource is recorded.
func (rec *Recording) Records(r cluster.Resource) bool {
	return rec.opts.Secrets || r.Group != "" || r.Resource != "secrets"
}

// Series returns the history of a resource of a cluster: in all namespaces or, if the
// mirror may not read those, in the given one. Before the newest series there may be
// others; see [Store.FindAll].
func (rec *Recording) Series(c *mirror.Cluster, r cluster.Resource, namespace string) []*Series {
	rec.mu.Lock()
	uid := rec.uids[c]
	rec.mu.Unlock()
	of := resourceOf(c.Name(), uid, r, "")
	if found := rec.store.FindAll(of); found != nil || namespace == "" {
		return found
	}
	of.Namespace = namespace
	return rec.store.FindAll(of)
}

func resourceOf(name, uid string, r cluster.Resource, namespace string) Resource {
	return Resource{Cluster: name, ClusterUID: uid, Group: r.Group, Version: r.Version, Resource: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced, Namespace: namespace}
}

// Resource returns a resource of a cluster that has a history, by its group, version and
// plural name or kind. An empty version stands for any, and group and version are not
// compared if the version is empty and the name is a plural.
func (rec *Recording) Resource(c *mirror.Cluster, group, version, name string) (cluster.Resource, bool) {
	for _, x := range slices.Backward(rec.store.All()) {
		o := x.Of
		if o.Cluster != c.Name() || o.Group != group && version != "" || o.Version != version && version != "" {
			continue
		}
		if r := (cluster.Resource{GroupVersionResource: schema.GroupVersionResource{Group: o.Group, Version: o.Version, Resource: o.Resource}, Kind: o.Kind, Namespaced: o.Namespaced}); name == o.Resource || strings.EqualFold(name, o.Kind) || name == r.String() {
			return r, true
		}
	}
	return cluster.Resource{}, false
}

// of returns what an informer mirrors. It waits until the cluster can be asked.
func (rec *Recording) of(ctx context.Context, inf *mirror.Informer) (Resource, error) {
	uid, err := rec.clusterUID(ctx, inf.Cluster())
	return resourceOf(inf.Cluster().Name(), uid, inf.Resource(), inf.Namespace()), err
}

// Record implements [mirror.Journal].
func (rec *Recording) Record(inf *mirror.Informer) (run func()) {
	ctx, r := inf.Context(), inf.Resource()
	if !rec.Records(r) {
		return nil
	}
	events, stop := Subscribe(ctx, inf.Engine(), inf.FollowOptions()...)
	x := &recorded{begun: make(chan struct{})}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.running[inf] = x
	return func() {
		defer stop()
		defer func() {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			delete(rec.running, inf)
			if x.series == nil {
				close(x.begun)
			}
		}()
		of, err := rec.of(ctx, inf)
		if err != nil {
			return // the informer has ended
		}
		err = rec.store.Record(ctx, of, events, RecordOptions{
			Thin:    rec.Thinned(r),
			Current: func() bool { return inf.Engine().Status().Phase == informer.Watching },
			began: func(w *Writer) {
				x.series = w.series
				close(x.begun)
			},
			held: func() map[string]identity { return x.held },
		})
		if err != nil && ctx.Err() == nil {
			rec.store.log.Error("the history of a resource is not recorded any more; restart the server to go on", "cluster", inf.Cluster().Name(), "resource", r.String(), "err", err)
		}
	}
}

// recorded is an informer that is being recorded.
type recorded struct {
	begun  chan struct{}       // closed when the series is known, or will not be
	series *Series             // set before begun is closed; written by nobody else
	held   map[string]identity // what the informer started from; set before its first event
}

// restorePatience is how long an informer waits for the history.
const restorePatience = 30 * time.Second

// Restore implements [mirror.Journal].
func (rec *Recording) Restore(ctx context.Context, inf *mirror.Informer, each func(json []byte) error) (resourceVersion string, err error) {
	rec.mu.Lock()
	x := rec.running[inf]
	rec.mu.Unlock()
	if x == nil {
		return "", nil
	}
	if _, err := rec.clusterUID(ctx, inf.Cluster()); err != nil {
		return "", err
	}
	select {
	case <-x.begun:
	case <-time.After(restorePatience):
		return "", errors.New("an earlier informer still writes the history")
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	if x.series == nil || x.series.Of.ClusterUID == "" { // without a uid, it may be another cluster
		return "", nil
	}
	held := map[string]identity{}
	version, err := x.series.Newest(func(v Version, json []byte) error {
		held[v.Key] = identity{v.UID, v.ResourceVersion}
		if len(held)%1000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return each(json)
	})
	if err != nil || version == 0 {
		return "", err
	}
	x.held = held
	return strconv.FormatUint(version, 10), nil
}

// clusterUID identifies a cluster by the uid of its namespace kube-system. It waits until
// the cluster can be asked. The result is empty if the mirror may not read the namespace,
// or there is none.
func (rec *Recording) clusterUID(ctx context.Context, c *mirror.Cluster) (string, error) {
	rec.mu.Lock()
	uid, known := rec.uids[c]
	rec.mu.Unlock()
	for pause := time.Second; !known; pause = min(2*pause, 30*time.Second) {
		identified := rec.identified.Next()
		o, err := Namespace(ctx, c, metav1.NamespaceSystem)
		switch {
		case err == nil && o != nil:
			uid, known = string(o.UID), true
		case err == nil, apierrors.IsForbidden(err):
			known = true
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		default:
			select {
			case <-time.After(pause):
			case <-identified:
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if _, found := rec.uids[c]; !found {
		rec.uids[c] = uid
		rec.identified.Notify()
		context.AfterFunc(c.Context(), func() {
			rec.mu.Lock()
			defer rec.mu.Unlock()
			delete(rec.uids, c)
		})
	}
	return uid, nil
}

// Namespace asks the API server for the metadata of a namespace, nil if there is none.
func Namespace(ctx context.Context, c *mirror.Cluster, name string) (*metav1.PartialObjectMetadata, error) {
	objects, err := codec.For[*metav1.PartialObjectMetadata](corev1.SchemeGroupVersion.WithKind("Namespace"), codec.Options{})
	if err != nil {
		return nil, err
	}
	target := source.Target{Cluster: c.Name(), Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"}
	from := source.NewKube(c.Connection().HTTPClient(), c.Connection().BaseURL(), target, objects)
	o, err := from.Get(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return o, err
}
