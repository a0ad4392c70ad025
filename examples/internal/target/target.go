// Package target connects the examples to the cluster of a kubeconfig or, by default,
// to a demo: an API server in memory whose objects change all the time.
package target

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer/informertest"
)

// Flags choose the cluster.
type Flags struct {
	Demo                bool
	Kubeconfig, Context string
}

// Register adds the flags to a set.
func (f *Flags) Register(set *flag.FlagSet) {
	set.BoolVar(&f.Demo, "demo", true, "use an API server in memory; --demo=false, --kubeconfig or --context use a cluster")
	set.StringVar(&f.Kubeconfig, "kubeconfig", "", "kubeconfig file (default: that of kubectl)")
	set.StringVar(&f.Context, "context", "", "context of the kubeconfig (default: the current one)")
}

// Connect connects to the cluster. The caller must call stop.
func (f *Flags) Connect(ctx context.Context) (conn *cluster.Cluster, stop func(), err error) {
	if f.Demo && f.Kubeconfig == "" && f.Context == "" {
		return Demo(ctx, 200*time.Millisecond)
	}
	conn, err = cluster.FromKubeconfig(f.Kubeconfig, f.Context)
	if err != nil {
		return nil, nil, err
	}
	return conn, conn.Close, nil
}

// Demo starts the demo. One of its deployments, web and db of namespace default,
// changes each period, as does one of its pods.
func Demo(ctx context.Context, period time.Duration) (conn *cluster.Cluster, stop func(), err error) {
	server, err := informertest.NewServer(deployment("web", 0), deployment("db", 0), pod("web", 0), pod("db", 0))
	if err != nil {
		return nil, nil, err
	}
	conn, err = cluster.New("demo", server.Config())
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { change(ctx, server, period) })
	return conn, func() {
		cancel()
		wg.Wait()
		conn.Close()
		server.Close()
	}, nil
}

// change changes the objects of the demo until ctx ends.
func change(ctx context.Context, server *informertest.Server, period time.Duration) {
	for n := 1; ; n++ {
		select {
		case <-time.After(period):
		case <-ctx.Done():
			return
		}
		name := []string{"web", "db"}[n%2]
		for _, obj := range []informertest.Object{deployment(name, n), pod(name, n)} {
			if _, err := server.Update(obj); err != nil {
				panic(fmt.Sprintf("the demo cannot change %s: %v", name, err)) // nobody else writes these objects
			}
		}
	}
}

func deployment(name string, revision int) *appsv1.Deployment {
	meta := meta(name, revision)
	if name == "web" {
		meta.Labels["example.com/min-available"] = "1"
	}
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
	}}
}

func pod(name string, revision int) *corev1.Pod {
	meta := meta(name, revision)
	meta.Name += "-0"
	return &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
}

func meta(name string, revision int) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"app": name},
		Annotations: map[string]string{"example.com/revision": fmt.Sprint(revision)},
	}
}
