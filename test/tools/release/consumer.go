package main

import "strings"

// usesInformer is the README's example of the library.
const usesInformer = `package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
)

func main() {
	ctx := context.Background()
	conn, err := cluster.FromKubeconfig("", "")
	if err != nil {
		log.Fatal(err)
	}
	pods, err := informer.New[*corev1.Pod](conn, informer.InNamespace("shop"))
	if err != nil {
		log.Fatal(err)
	}
	pods.AddHandler(informer.Handlers[*corev1.Pod]{
		Add:    func(pod *corev1.Pod, _ bool) { fmt.Println("added", pod.Name) },
		Update: func(_, pod *corev1.Pod) { fmt.Println("updated", pod.Name) },
		Delete: func(pod *corev1.Pod) { fmt.Println("deleted", pod.Name) },
	})
	if err := pods.Start(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(pods.List(informer.Query{Labels: labels.SelectorFromSet(labels.Set{"app": "web"})})))
	for e := range pods.Events(ctx) {
		fmt.Println(e.Type)
	}
}
`

// usesJournal does the same with an informer that starts from a journal.
var usesJournal = strings.NewReplacer(
	`"github.com/tidings-io/tidings/informer"
`, `"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/journal"
`,
	`informer.New[*corev1.Pod](conn, `, `journal.NewInformer[*corev1.Pod](kept, "pods of shop", conn, `,
	`	pods, err :=`, `	kept, err := journal.Open("journal")
	if err != nil {
		log.Fatal(err)
	}
	defer kept.Close()
	pods, err :=`,
).Replace(usesInformer)

// usesClientGo does the same with client-go's informers.
const usesClientGo = `package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	ctx := context.Background()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		log.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace("shop"))
	pods := factory.Core().V1().Pods()
	pods.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { fmt.Println("added", o.(*corev1.Pod).Name) },
		UpdateFunc: func(_, o any) { fmt.Println("updated", o.(*corev1.Pod).Name) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			fmt.Println("deleted", o.(*corev1.Pod).Name)
		},
	})
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.Informer().HasSynced) {
		log.Fatal("not synced")
	}
	web, err := pods.Lister().Pods("shop").List(labels.SelectorFromSet(labels.Set{"app": "web"}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(web))
	<-ctx.Done()
}
`
