package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	theirs "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/test/compat/internal/churn"
	ours "github.com/tidings-io/tidings/informer/clientgo/informers"
	"github.com/tidings-io/tidings/internal/controlplane"
)

var seed = flag.Int64("seed", 1, "of the dice")

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func TestTheSameCallsOnBothEngines(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(t.Output(), nil)))
	churn.Compare(t, controlplane.Start(t), churn.Subject{
		Name:        "sample",
		Collections: []string{"/apis/apps/v1/namespaces/NAMESPACE/replicasets", "/api/v1/namespaces/NAMESPACE/pods"},
		Driver: func(client kubernetes.Interface, namespace string) churn.Driver {
			return &driver{client, namespace}
		},
		Value: func(object map[string]any) (int, bool) {
			var pod corev1.Pod
			encoded, err := json.Marshal(object)
			if err != nil || json.Unmarshal(encoded, &pod) != nil || len(pod.Spec.Containers) == 0 {
				return 0, false
			}
			return value(&pod)
		},
		Engines: [2]churn.Engine{
			{Name: "client-go", Run: func(ctx context.Context, config *rest.Config, namespace string, workers int) error {
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					return err
				}
				return runOn(ctx, client, theirs.NewSharedInformerFactoryWithOptions(client, 0, theirs.WithNamespace(namespace), theirs.WithTweakListOptions(labelled)), workers)
			}},
			{Name: "tidings", Run: func(ctx context.Context, config *rest.Config, namespace string, workers int) error {
				client, err := kubernetes.NewForConfig(config)
				if err != nil {
					return err
				}
				return runOn(ctx, client, ours.NewSharedInformerFactoryWithOptions(client, 0, ours.WithNamespace(namespace), ours.WithTweakListOptions(labelled)), workers)
			}},
		},
	}, *seed)
}

func runOn(ctx context.Context, client kubernetes.Interface, factory theirs.SharedInformerFactory, workers int) error {
	c, err := newController(client, factory)
	if err != nil {
		return err
	}
	return c.run(ctx, workers)
}

// family is ReplicaSets with their pods.
type driver struct {
	client    kubernetes.Interface
	namespace string
}

func (d *driver) Apply(ctx context.Context, name string, to churn.Parent) error {
	labels := map[string]any{"sample": nil, "colour": fmt.Sprint(to.Colour)} // null takes a label away
	if to.Managed {
		labels["sample"] = "yes"
	}
	set := map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{"name": name, "labels": labels, "annotations": map[string]any{"note": fmt.Sprint(to.Note)}},
		"spec": map[string]any{
			"replicas": to.Size,
			"selector": map[string]any{"matchLabels": map[string]any{"of": name}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"of": name}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": fmt.Sprint("v", to.Value)}}},
			},
		},
	}
	body, err := json.Marshal(set)
	if err != nil {
		return err
	}
	sets := d.client.AppsV1().ReplicaSets(d.namespace)
	_, err = sets.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	var made appsv1.ReplicaSet
	if err := json.Unmarshal(body, &made); err != nil {
		return err
	}
	if !to.Managed {
		delete(made.Labels, "sample")
	}
	_, err = sets.Create(ctx, &made, metav1.CreateOptions{})
	return err
}

func (d *driver) Delete(ctx context.Context, name string) error {
	return d.client.AppsV1().ReplicaSets(d.namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (d *driver) DeleteChild(ctx context.Context, name string, of churn.Parent, n int) error {
	return ifThere(d.client.CoreV1().Pods(d.namespace).Delete(ctx, podName(name, n%of.Size), metav1.DeleteOptions{}))
}

func (d *driver) CorruptChild(ctx context.Context, name string, of churn.Parent, n int) error {
	_, err := d.client.CoreV1().Pods(d.namespace).Patch(ctx, podName(name, n%of.Size), types.MergePatchType, []byte(`{"metadata":{"labels":{"colour":"spoilt"}}}`), metav1.PatchOptions{})
	return ifThere(err)
}

func ifThere(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func podName(set string, n int) string { return fmt.Sprintf("%s-%d", set, n) }

func (d *driver) Expected(name string, parent churn.Parent) []string {
	if !parent.Managed {
		return nil
	}
	lines := []string{fmt.Sprintf("%s: %d pods", name, parent.Size)}
	for i := range parent.Size {
		lines = append(lines, fmt.Sprintf("%s of %s: value %d, colour %d", podName(name, i), name, parent.Value, parent.Colour))
	}
	return lines
}

func (d *driver) Actual(ctx context.Context) ([]string, error) {
	sets, err := d.client.AppsV1().ReplicaSets(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	pods, err := d.client.CoreV1().Pods(d.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var lines []string
	owners := map[types.UID]string{}
	for _, set := range sets.Items {
		owners[set.UID] = set.Name
		if set.Labels["sample"] != "yes" {
			continue
		}
		state := fmt.Sprintf("%s: %d pods", set.Name, set.Status.Replicas)
		if set.Status.ObservedGeneration != set.Generation {
			state += ", at some time"
		}
		lines = append(lines, state)
	}
	for _, pod := range pods.Items {
		owner := "nobody"
		if of := metav1.GetControllerOf(&pod); of != nil && owners[of.UID] != "" {
			owner = owners[of.UID]
		}
		value, _ := value(&pod)
		lines = append(lines, fmt.Sprintf("%s of %s: value %d, colour %s", pod.Name, owner, value, pod.Labels["colour"]))
	}
	return lines, nil
}

// value is the number in a pod's image.
func value(pod *corev1.Pod) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(pod.Spec.Containers[0].Image, "v"))
	return n, err == nil
}
