// Command sample is an example of a controller written on client-go alone, with
// informers from a shared factory, an index, listers and a workqueue. The only
// line that differs for the engine of Tidings is marked.
//
// For every ReplicaSet with the label sample=yes, it keeps the pods that the spec
// asks for and reports them in the status. It does not replace Kubernetes' own
// controller: it ignores the state of pods.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidings-io/tidings/informer/clientgo/informers" // this is the line; was "k8s.io/client-go/informers"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "path of a kubeconfig; empty: KUBECONFIG, the default file or this pod's")
	namespace := flag.String("namespace", metav1.NamespaceAll, "the namespace to work in; empty: all")
	flag.Parse()
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = *kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithNamespace(*namespace), informers.WithTweakListOptions(labelled))
	c, err := newController(client, factory)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.run(ctx, 2); err != nil {
		log.Fatal(err)
	}
}

// labelled limits a list or a watch to the controller's objects.
func labelled(options *metav1.ListOptions) { options.LabelSelector = "sample=yes" }
