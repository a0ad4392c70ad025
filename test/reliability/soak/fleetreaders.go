package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// readers starts the readers of all replicas.
func (f *fleet) readers(ctx context.Context, group *errgroup.Group) error {
	soon := func(name string) func() time.Duration {
		random := f.random("away " + name)
		return func() time.Duration { return between(random, 50*time.Millisecond, 500*time.Millisecond) }
	}
	watch := func(c *kubeWatch, name string, r resource) {
		c.replay = newReplay("Kubernetes watch", name, r, f.truth, f.report)
		c.soak, c.away = f.soak, soon(name)
		group.Go(func() error { return c.run(ctx) })
	}
	for i, p := range f.replicas {
		one := *f.soak // with the replica in place of the server
		one.url = p.url
		at := func() string { return one.url }
		watch(&kubeWatch{at: at}, "config maps of "+p.name, configMaps)
		watch(&kubeWatch{at: at, metadata: true, initial: true}, "widgets of "+p.name+", streamed list", widgets)
		group.Go(func() error { return one.lists(ctx, f.random("lists of "+p.name)) })
		if err := f.unmodified(ctx, group, p.name, &rest.Config{Host: one.url}, i); err != nil {
			return err
		}
	}
	for i, r := range []resource{configMaps, configMaps, deployments, widgets} {
		name := fmt.Sprintf("%s of one replica after the other, %d", r, i)
		random := f.random("moves " + name)
		watch(&kubeWatch{metadata: i%2 == 1, at: func() string { return f.replicas[random.IntN(followers)].url }}, name, r)
	}
	balanced := &rest.Config{Host: f.replicas[0].url, Transport: &balancer{to: f.replicas, random: f.random("balancer"), next: &http.Transport{}}}
	if err := f.unmodified(ctx, group, "a balancer", balanced, 0); err != nil {
		return err
	}
	group.Go(func() error { return f.auditLog(ctx) })
	return f.probes(ctx, group)
}

// unmodified starts informers of client-go.
func (f *fleet) unmodified(ctx context.Context, group *errgroup.Group, of string, config *rest.Config, i int) error {
	config.QPS = -1
	if i%2 == 0 {
		config.ContentType = "application/vnd.kubernetes.protobuf"
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	group.Go(func() error {
		return f.clientGo(ctx, client.CoreV1().RESTClient(), configMaps, &corev1.ConfigMap{}, "config maps of "+of)
	})
	group.Go(func() error {
		return f.clientGo(ctx, client.AppsV1().RESTClient(), deployments, &appsv1.Deployment{}, "deployments of "+of)
	})
	return nil
}

// balancer sends each request to another replica.
type balancer struct {
	to   []*part
	next http.RoundTripper

	mu     sync.Mutex
	random *rand.Rand
}

// RoundTrip implements [http.RoundTripper].
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	b.mu.Lock()
	to := b.to[b.random.IntN(len(b.to))].url
	b.mu.Unlock()
	target, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	req.URL.Host, req.Host = target.Host, target.Host
	return b.next.RoundTrip(req)
}

const (
	probeEvery    = 300 * time.Millisecond
	probePatience = 5 * time.Second
)

// probes write to the API server, and read at once from each replica, which must have what was
// written or refuse to answer. They are leases, because those are not compared otherwise.
func (f *fleet) probes(ctx context.Context, group *errgroup.Group) error {
	config := rest.CopyConfig(f.cp.AdminConfig())
	config.Timeout = probePatience
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	leases := client.CoordinationV1().Leases(metav1.NamespaceDefault)
	for _, p := range f.replicas {
		reader, err := kubernetes.NewForConfig(&rest.Config{Host: p.url, QPS: -1, Timeout: probePatience})
		if err != nil {
			return err
		}
		own := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe-" + p.name}}
		if _, err := leases.Create(ctx, own, metav1.CreateOptions{}); err != nil {
			return err
		}
		group.Go(func() error {
			for n := 0; Sleep(ctx, probeEvery); n++ {
				patch := fmt.Appendf(nil, `{"spec":{"holderIdentity":"%d"}}`, n)
				written, err := leases.Patch(ctx, own.Name, types.MergePatchType, patch, metav1.PatchOptions{})
				if err != nil {
					continue // the API server is away
				}
				read, err := reader.CoordinationV1().Leases(own.Namespace).Get(ctx, own.Name, metav1.GetOptions{})
				switch {
				case ctx.Err() != nil:
				case apierrors.IsNotFound(err):
					f.report.mismatch("fresh read of "+p.name, fmt.Sprintf("%s is not found after version %s was written", own.Name, written.ResourceVersion), nil)
				case err != nil:
					f.report.count("read right after a write, refused", 1)
				default:
					f.report.count("read right after a write, answered", 1)
					if number(read.ResourceVersion) < number(written.ResourceVersion) {
						f.report.mismatch("fresh read of "+p.name, fmt.Sprintf("%s is of version %s after %s was written", own.Name, read.ResourceVersion, written.ResourceVersion), nil)
					}
				}
			}
			return nil
		})
	}
	return nil
}
