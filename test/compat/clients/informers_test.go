package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidings-io/tidings/internal/controlplane"
)

// runs starts an informer and waits until it has synced.
func (r *rig) runs(informer toolscache.SharedIndexInformer, o *observer) {
	r.Helper()
	_, err := informer.AddEventHandler(o.handler())
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	r.Cleanup(func() {
		cancel()
		<-done
	})
	r.synced(informer.HasSynced)
}

func (r *rig) synced(has ...toolscache.InformerSynced) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), has...) {
		r.Fatal("it did not sync")
	}
}

// typed runs an informer of typed objects.
func (r *rig) typed(at, contentType string) *observer {
	r.Helper()
	o := newObserver()
	config := r.config(at, o)
	config.ContentType = contentType
	c, err := kubernetes.NewForConfig(config)
	r.must(err)
	r.runs(informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer(), o)
	return o
}

func (r *rig) metadata(at string) *observer {
	r.Helper()
	o := newObserver()
	c, err := metadata.NewForConfig(r.config(at, o))
	r.must(err)
	r.runs(metadatainformer.NewFilteredSharedInformerFactory(c, 0, namespace, nil).ForResource(configMaps).Informer(), o)
	return o
}

func (r *rig) dynamic(at string) *observer {
	r.Helper()
	o := newObserver()
	c, err := dynamic.NewForConfig(r.config(at, o))
	r.must(err)
	r.runs(dynamicinformer.NewFilteredDynamicSharedInformerFactory(c, 0, namespace, nil).ForResource(configMaps).Informer(), o)
	return o
}

// controllerRuntime runs a cache of controller-runtime, which uses discovery to
// find the resource.
func (r *rig) controllerRuntime(at string, of client.Object) *observer {
	r.Helper()
	o := newObserver()
	c, err := cache.New(r.config(at, o), cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	r.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	r.Cleanup(func() {
		cancel()
		r.must(<-done)
	})
	informer, err := c.GetInformer(r.Context(), of)
	r.must(err)
	handled, err := informer.AddEventHandler(o.handler())
	r.must(err)
	r.synced(informer.HasSynced, handled.HasSynced)

	// The cache can be read.
	var list corev1.ConfigMapList
	if _, ok := of.(*corev1.ConfigMap); ok {
		r.must(c.List(r.Context(), &list, client.InNamespace(namespace)))
		if len(list.Items) == 0 {
			r.Error("the cache is empty")
		}
	}
	return o
}

// kubectl runs kubectl get -w.
func (r *rig) kubectl(at string) *observer {
	r.Helper()
	o := newObserver()
	kubeconfig := filepath.Join(r.TempDir(), "kubeconfig")
	r.must(controlplane.WriteKubeconfig(kubeconfig, r.config(at, o)))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(r.cp.BinDir(), "kubectl"), "get", "configmaps", "-n", namespace, "--watch", "--output-watch-events", "-o", "json")
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+r.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	r.must(err)
	r.must(cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for events := json.NewDecoder(out); ; {
			var e struct {
				Type   string
				Object struct{ Metadata metav1.ObjectMeta }
			}
			if events.Decode(&e) != nil {
				break
			}
			o.note(e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion)
		}
		if _ = cmd.Wait(); !o.ending.Load() { // it is killed
			o.fail("kubectl has ended: " + said.String())
		}
	}()
	o.over = func() {
		o.ending.Store(true)
		cancel()
		<-done
	}
	r.Cleanup(o.over)
	return o
}
