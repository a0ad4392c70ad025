package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/samplepods"
)

func main() {
	log.SetFlags(0)
	pods := flag.Int("pods", 10_000, "how many `pods` the cluster has")
	runs := flag.Int("runs", 1, "how many `runs` each program has on each side")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *pods, *runs); err != nil {
		log.Fatal(err)
	}
}

// program is one that is measured.
type program struct {
	name  string
	flags []string
	// work gives the program something to do and returns when it has done it.
	work func(ctx context.Context, c kubernetes.Interface, namespace string) error
}

var programs = []program{
	{"kube-controller-manager", []string{
		"--controllers=*,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller",
	}, deploy},
	{"kube-scheduler", []string{
		"--feature-gates=DRADeviceTaintRules=false", // the API server of the tests does not have them
	}, bind},
}

// sides are the values of INFORMERS.
var sides = []string{"client-go", "tidings"}

func measure(ctx context.Context, pods, runs int) error {
	log.Print("building kube-controller-manager and kube-scheduler, which takes minutes the first time")
	binary, err := build(ctx)
	if err != nil {
		return err
	}
	cp, err := controlplane.Launch(ctx)
	if err != nil {
		return err
	}
	defer cp.Stop()
	client, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		return err
	}
	log.Printf("creating %d pods", pods)
	if err := fill(ctx, cp.AdminConfig(), client, pods); err != nil {
		return err
	}
	seen := map[string][]figures{}
	for n := range runs {
		for _, p := range programs {
			for _, side := range sides {
				f, err := p.run(ctx, binary, side, cp.Kubeconfig(controlplane.Admin), client, fmt.Sprintf("run-%d-%s-%s", n, p.name, side))
				if err != nil {
					return fmt.Errorf("%s on the informers of %s: %w", p.name, side, err)
				}
				log.Printf("run %d of %d: %s on %s: %v", n+1, runs, p.name, side, f)
				seen[p.name+side] = append(seen[p.name+side], f)
			}
		}
	}
	return show(pods, seen)
}

// fill creates the nodes and the pods on them. The pods have no owners: the garbage
// collector would delete them, because the owners are not there.
func fill(ctx context.Context, config *rest.Config, client kubernetes.Interface, n int) error {
	pods := samplepods.Clone(n, 1)
	nodes := map[string]bool{}
	for i := range pods {
		pods[i].OwnerReferences = nil
		nodes[pods[i].Spec.NodeName] = true
	}
	delete(nodes, "")
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		node.Status.Capacity = corev1.ResourceList{corev1.ResourcePods: quantity("10000"), corev1.ResourceCPU: quantity("10000"), corev1.ResourceMemory: quantity("100Ti")}
		node.Status.Allocatable = node.Status.Capacity
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if node, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		node.Spec.Taints = nil // the API server makes nodes that are not ready
		if _, err := client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	if err := samplepods.Create(ctx, config, pods, 16); err != nil {
		return err
	}
	return samplepods.WriteStatus(ctx, config, pods, 16)
}

// run starts the program, has it work, and measures it once it is at rest.
func (p program) run(ctx context.Context, binary, side, kubeconfig string, client kubernetes.Interface, namespace string) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "kubernetes-")
	if err != nil {
		return figures{}, err
	}
	defer os.RemoveAll(dir)
	output, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return figures{}, err
	}
	defer output.Close()
	cmd := exec.CommandContext(ctx, binary, append([]string{p.name, "--kubeconfig=" + kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=1000", "--kube-api-burst=1000"}, p.flags...)...)
	cmd.Env = append(os.Environ(), "INFORMERS="+side)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return figures{}, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		err := <-ended
		stop(fmt.Errorf("the program has ended: %v", err))
		ended <- err
	}()
	if _, err = client.CoreV1().Namespaces().Create(working, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err == nil {
		err = p.work(working, client, namespace)
	}
	var f figures
	if err == nil {
		f, err = atRest(working, cmd.Process.Pid)
	}
	if err != nil {
		said, _ := os.ReadFile(output.Name())
		return figures{}, fmt.Errorf("%w\n%s", errors.Join(err, context.Cause(working)), said[max(0, len(said)-4096):])
	}
	return f, nil
}

var replicas int32 = 3

// deploy creates a Deployment and returns when its pods are there.
func deploy(ctx context.Context, c kubernetes.Interface, namespace string) error {
	labels := map[string]string{"app": "new"}
	_, err := c.AppsV1().Deployments(namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "new"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await(ctx, func() (bool, error) {
		list, err := c.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == int(replicas), err
	})
}

// bind creates a pod and returns when it has a node.
func bind(ctx context.Context, c kubernetes.Interface, namespace string) error {
	_, err := c.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Spec: podSpec()}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return await(ctx, func() (bool, error) {
		pod, err := c.CoreV1().Pods(namespace).Get(ctx, "new", metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName != "", err
	})
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "registry.example/main:1"}}}
}

func await(ctx context.Context, done func() (bool, error)) error {
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// show prints the medians.
func show(pods int, seen map[string][]figures) error {
	fmt.Printf("%d pods; medians of the runs\n\n", pods)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, strings.Join([]string{"", "informers of", "RSS MB", "peak MB", "CPU s", ""}, "\t"))
	for _, p := range programs {
		for _, side := range sides {
			f := median(seen[p.name+side])
			fmt.Fprintf(out, "%s\t%s\t%.0f\t%.0f\t%.1f\t\n", p.name, side, f.rss, f.peak, f.cpu)
		}
	}
	return out.Flush()
}
