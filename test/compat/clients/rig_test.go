package clients

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

const namespace = controlplane.Namespace

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// rig is a mirror that authenticates its callers, with a proxy to its cluster
// and another one to its clients.
type rig struct {
	*testing.T
	cp      *controlplane.Cluster
	cluster *proxy // between the cluster and the mirror
	clients *proxy // between the mirror and its clients
	mirror  *mirror.Mirror
	ca      []byte
	admin   kubernetes.Interface
	rnd     *rand.Rand
	writes  int
}

func newRig(t *testing.T) *rig {
	t.Helper()
	cp := controlplane.Start(t)
	upstream, err := url.Parse(cp.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, cp: cp, cluster: newProxy(t, upstream.Host), rnd: rand.New(rand.NewPCG(1, 2))}
	config := cp.AdminConfig()
	config.Host = r.cluster.url()
	logger := slog.New(slog.DiscardHandler)
	m, err := mirror.New(mirror.Options{Logger: logger})
	r.must(err)
	r.mirror = m
	t.Cleanup(func() { r.must(m.Close(context.Background())) })
	r.must(m.Set(t.Context(), map[string]*rest.Config{"real": config}))
	gate, err := access.NewGate(access.Options{Logger: logger, Grace: time.Hour}) // the API server may take long to restart
	r.must(err)
	t.Cleanup(gate.Close)
	// With many bookmarks, a watch can resume wherever it breaks.
	s, err := server.New(m, server.Options{Gate: gate, Logger: logger, Kubernetes: kubeapi.Options{BookmarkEvery: 50 * time.Millisecond}})
	r.must(err)
	t.Cleanup(s.Close)
	https := httptest.NewUnstartedServer(s.Handler())
	https.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	https.EnableHTTP2 = true
	https.StartTLS()
	t.Cleanup(https.Close)
	r.clients = newProxy(t, https.Listener.Addr().String())
	r.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	r.admin, err = kubernetes.NewForConfig(cp.AdminConfig())
	r.must(err)
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// config returns the configuration of a client of the mirror that may read one
// namespace. The observer counts its lists.
func (r *rig) config(at string, o *observer) *rest.Config {
	config := &rest.Config{
		Host: r.clients.url() + at, BearerToken: "namespaced-user-token", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.ca},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return listCounter{next, o} })
	return config
}

// relists returns how often the mirror has listed the clients' resource, after
// the first time.
func (r *rig) relists() uint64 {
	r.Helper()
	for _, c := range r.mirror.Status().Clusters {
		for _, r := range c.Resources {
			if r.Resource == configMaps {
				return r.Lists - 1
			}
		}
	}
	r.Fatal("config maps are not mirrored")
	return 0
}

// write writes to the cluster and returns the events of the writes. The last
// write changes an object that always exists: a client that knows its version
// has got all earlier events.
func (r *rig) write(n int) (events []string) {
	r.Helper()
	api := r.admin.CoreV1().ConfigMaps(namespace)
	change := func(name string) bool {
		r.writes++
		o, err := api.Patch(r.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"i":"%d"}}`, r.writes), metav1.PatchOptions{})
		if err == nil {
			events = append(events, "MODIFIED "+name+"@"+o.ResourceVersion)
		}
		return err == nil
	}
	create := func(name string) bool {
		o, err := api.Create(r.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			events = append(events, "ADDED "+name+"@"+o.ResourceVersion)
		}
		return err == nil
	}
	for range n {
		name := fmt.Sprint("c", r.rnd.IntN(12))
		switch r.rnd.IntN(3) {
		case 0: // half of these exist already
			_ = create(name) || change(name)
		case 1:
			_ = change(name) || create(name)
		default:
			if api.Delete(r.Context(), name, metav1.DeleteOptions{}) == nil {
				events = append(events, "DELETED "+name)
			}
		}
	}
	if !change("end") && !create("end") {
		r.Fatal("the cluster cannot be written to")
	}
	return events
}

func (r *rig) truth() map[string]string {
	r.Helper()
	list, err := r.admin.CoreV1().ConfigMaps(namespace).List(r.Context(), metav1.ListOptions{})
	r.must(err)
	out := map[string]string{}
	for _, o := range list.Items {
		out[o.Name] = o.ResourceVersion
	}
	return out
}
