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

	"github.com/tidings-io/tidings/access"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/kubeapi"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/server"
)

const namespace = controlplane.Namespace

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// place is a mirror that authenticates its callers, with a cluster at the other
// end of one line and its clients at the other end of another.
type place struct {
	*testing.T
	cp      *controlplane.Cluster
	cluster *line // between the cluster and the mirror
	clients *line // between the mirror and its clients
	mirror  *mirror.Mirror
	ca      []byte
	admin   kubernetes.Interface
	rnd     *rand.Rand
	writes  int
}

func newPlace(t *testing.T) *place {
	t.Helper()
	cp := controlplane.Start(t)
	upstream, err := url.Parse(cp.URL())
	if err != nil {
		t.Fatal(err)
	}
	p := &place{T: t, cp: cp, cluster: newLine(t, upstream.Host), rnd: rand.New(rand.NewPCG(1, 2))}
	config := cp.AdminConfig()
	config.Host = p.cluster.url()
	logger := slog.New(slog.DiscardHandler)
	m, err := mirror.New(mirror.Options{Logger: logger})
	p.must(err)
	p.mirror = m
	t.Cleanup(func() { p.must(m.Close(context.Background())) })
	p.must(m.Set(t.Context(), map[string]*rest.Config{"real": config}))
	gate, err := access.NewGate(access.Options{Logger: logger, Grace: time.Hour}) // the API server may be long in coming back
	p.must(err)
	t.Cleanup(gate.Close)
	// With many bookmarks, there is one to go on from wherever a watch breaks.
	s, err := server.New(m, server.Options{Gate: gate, Logger: logger, Kubernetes: kubeapi.Options{BookmarkEvery: 50 * time.Millisecond}})
	p.must(err)
	t.Cleanup(s.Close)
	https := httptest.NewUnstartedServer(s.Handler())
	https.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	https.EnableHTTP2 = true
	https.StartTLS()
	t.Cleanup(https.Close)
	p.clients = newLine(t, https.Listener.Addr().String())
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: https.Certificate().Raw})
	p.admin, err = kubernetes.NewForConfig(cp.AdminConfig())
	p.must(err)
	return p
}

func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// config is of a client of the mirror that may see one namespace. What it asks
// for is noted by the witness of what it is told.
func (p *place) config(at string, w *witness) *rest.Config {
	config := &rest.Config{
		Host: p.clients.url() + at, BearerToken: "namespaced-user-token", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca},
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return asks{next, w} })
	return config
}

// relists is how often the mirror has listed what the clients watch, but for the
// first time.
func (p *place) relists() uint64 {
	p.Helper()
	for _, c := range p.mirror.Status().Clusters {
		for _, r := range c.Resources {
			if r.Resource == configMaps {
				return r.Lists - 1
			}
		}
	}
	p.Fatal("config maps are not mirrored")
	return 0
}

// write writes to the cluster and returns what a watch is to tell of it. The last
// of it changes an object that stays: whoever knows its version has been told of
// everything before.
func (p *place) write(n int) (told []string) {
	p.Helper()
	api := p.admin.CoreV1().ConfigMaps(namespace)
	change := func(name string) bool {
		p.writes++
		o, err := api.Patch(p.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"i":"%d"}}`, p.writes), metav1.PatchOptions{})
		if err == nil {
			told = append(told, "MODIFIED "+name+"@"+o.ResourceVersion)
		}
		return err == nil
	}
	create := func(name string) bool {
		o, err := api.Create(p.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			told = append(told, "ADDED "+name+"@"+o.ResourceVersion)
		}
		return err == nil
	}
	for range n {
		name := fmt.Sprint("c", p.rnd.IntN(12))
		switch p.rnd.IntN(3) {
		case 0: // of which half is there already
			_ = create(name) || change(name)
		case 1:
			_ = change(name) || create(name)
		default:
			if api.Delete(p.Context(), name, metav1.DeleteOptions{}) == nil {
				told = append(told, "DELETED "+name)
			}
		}
	}
	if !change("end") && !create("end") {
		p.Fatal("the cluster cannot be written to")
	}
	return told
}

func (p *place) truth() map[string]string {
	p.Helper()
	list, err := p.admin.CoreV1().ConfigMaps(namespace).List(p.Context(), metav1.ListOptions{})
	p.must(err)
	out := map[string]string{}
	for _, o := range list.Items {
		out[o.Name] = o.ResourceVersion
	}
	return out
}
