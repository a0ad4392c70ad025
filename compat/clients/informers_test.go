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
func (p *place) runs(informer toolscache.SharedIndexInformer, w *witness) {
	p.Helper()
	_, err := informer.AddEventHandler(w.handler())
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	p.Cleanup(func() {
		cancel()
		<-done
	})
	p.synced(informer.HasSynced)
}

func (p *place) synced(has ...toolscache.InformerSynced) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), time.Minute)
	defer cancel()
	if !toolscache.WaitForCacheSync(ctx.Done(), has...) {
		p.Fatal("it did not sync")
	}
}

// typed is an informer of client-go's own types.
func (p *place) typed(at, contentType string) *witness {
	p.Helper()
	w := newWitness()
	config := p.config(at, w)
	config.ContentType = contentType
	c, err := kubernetes.NewForConfig(config)
	p.must(err)
	p.runs(informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithNamespace(namespace)).Core().V1().ConfigMaps().Informer(), w)
	return w
}

func (p *place) metadata(at string) *witness {
	p.Helper()
	w := newWitness()
	c, err := metadata.NewForConfig(p.config(at, w))
	p.must(err)
	p.runs(metadatainformer.NewFilteredSharedInformerFactory(c, 0, namespace, nil).ForResource(configMaps).Informer(), w)
	return w
}

func (p *place) dynamic(at string) *witness {
	p.Helper()
	w := newWitness()
	c, err := dynamic.NewForConfig(p.config(at, w))
	p.must(err)
	p.runs(dynamicinformer.NewFilteredDynamicSharedInformerFactory(c, 0, namespace, nil).ForResource(configMaps).Informer(), w)
	return w
}

// controllerRuntime is a cache of controller-runtime, which finds out by
// discovery what it is to watch.
func (p *place) controllerRuntime(at string, of client.Object) *witness {
	p.Helper()
	w := newWitness()
	c, err := cache.New(p.config(at, w), cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	p.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	p.Cleanup(func() {
		cancel()
		p.must(<-done)
	})
	informer, err := c.GetInformer(p.Context(), of)
	p.must(err)
	handled, err := informer.AddEventHandler(w.handler())
	p.must(err)
	p.synced(informer.HasSynced, handled.HasSynced)

	// What it holds can be read.
	var list corev1.ConfigMapList
	if _, ok := of.(*corev1.ConfigMap); ok {
		p.must(c.List(p.Context(), &list, client.InNamespace(namespace)))
		if len(list.Items) == 0 {
			p.Error("the cache is empty")
		}
	}
	return w
}

// kubectl is kubectl get -w.
func (p *place) kubectl(at string) *witness {
	p.Helper()
	w := newWitness()
	kubeconfig := filepath.Join(p.TempDir(), "kubeconfig")
	p.must(controlplane.WriteKubeconfig(kubeconfig, p.config(at, w)))
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, filepath.Join(p.cp.BinDir(), "kubectl"), "get", "configmaps", "-n", namespace, "--watch", "--output-watch-events", "-o", "json")
	cmd.Env = append(cmd.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+p.TempDir())
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	p.must(err)
	p.must(cmd.Start())
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
			w.note(e.Type, e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion)
		}
		if _ = cmd.Wait(); !w.ending.Load() { // it is killed
			w.complain("kubectl has ended: " + said.String())
		}
	}()
	w.over = func() {
		w.ending.Store(true)
		cancel()
		<-done
	}
	p.Cleanup(w.over)
	return w
}
