package soak

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The objects of the cluster at rest.
const (
	namespaces   = 4
	workloads    = 8
	replicas     = 15
	mostReplicas = 40
	configs      = 200
	customs      = 60
)

// churn changes the cluster, without the proxies.
type churn struct {
	client *kubernetes.Clientset
	rest   rest.Interface // of anything
	report *Report

	mu   sync.RWMutex  // held for reading by each step, and for writing during a pause
	next atomic.Uint64 // a number that was never written
}

// workers is the number of concurrent steps.
const workers = 4

func newChurn(config *rest.Config, report *Report) (*churn, error) {
	config = rest.CopyConfig(config)
	config.Timeout = 10 * time.Second
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &churn{client: client, rest: client.RESTClient(), report: report}, nil
}

func (c *churn) namespace(i int) string { return fmt.Sprintf("soak-%d", i%namespaces) }

// build creates the initial objects.
func (c *churn) build(ctx context.Context) error {
	for i := range namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace(i)}}
		if _, err := c.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	for i := range workloads {
		if _, err := c.client.AppsV1().Deployments(c.namespace(i)).Create(ctx, newDeployment(i), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return c.restore(ctx)
}

// restore brings the cluster back to its initial state.
func (c *churn) restore(ctx context.Context) error {
	for i := range workloads {
		if err := c.scale(ctx, i, replicas); err != nil {
			return err
		}
	}
	for i := range configs {
		if err := c.writeConfig(ctx, i); err != nil {
			return err
		}
	}
	for i := range customs {
		// The definition may be gone, or be about to go.
		err := c.writeWidget(ctx, i)
		for range 300 {
			if !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) || !Sleep(ctx, 100*time.Millisecond) {
				break
			}
			if err = c.define(ctx); err == nil || apierrors.IsAlreadyExists(err) {
				err = c.writeWidget(ctx, i)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func newDeployment(i int) *appsv1.Deployment {
	n := int32(replicas)
	labels := map[string]string{"app": fmt.Sprintf("web-%d", i)}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i)},
		Spec: appsv1.DeploymentSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: new(int64(1)),
					Containers:                    []corev1.Container{{Name: "web", Image: "registry.example/web:1", Env: []corev1.EnvVar{{Name: "MODE", Value: "soak"}}}},
				},
			},
		},
	}
}

// run makes changes until ctx ends.
func (c *churn) run(ctx context.Context, random *rand.Rand, rate float64) error {
	tick := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		c.mu.RLock()
		what, err := c.step(ctx, random)
		c.mu.RUnlock()
		if ctx.Err() != nil {
			return nil
		}
		if apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
			continue
		}
		if c.report.did(what, err); err != nil {
			Sleep(ctx, 100*time.Millisecond)
		}
	}
}

// pause stops all changes and waits for those in progress; resume ends it.
func (c *churn) pause() (resume func()) {
	c.mu.Lock() // waits for the steps in progress
	return c.mu.Unlock
}

// step makes one change.
func (c *churn) step(ctx context.Context, random *rand.Rand) (string, error) {
	n := random.IntN(1000)
	switch {
	case n < 350:
		return "config map written", c.writeConfig(ctx, random.IntN(configs))
	case n < 450:
		i := random.IntN(configs)
		return "config map deleted", c.client.CoreV1().ConfigMaps(c.namespace(i)).Delete(ctx, configName(i), metav1.DeleteOptions{})
	case n < 455:
		return "burst of config maps written", c.burst(ctx)
	case n < 700:
		return "custom resource written", c.writeWidget(ctx, random.IntN(customs))
	case n < 770:
		i := random.IntN(customs)
		return "custom resource deleted", c.rest.Delete().AbsPath(widgetsPath(c.namespace(i)), widgetName(i)).Do(ctx).Error()
	case n < 772:
		return "custom resource definition deleted", c.rest.Delete().AbsPath(definitions, definitionName).Do(ctx).Error()
	case n < 785:
		err := c.define(ctx)
		return "custom resource definition created", err
	case n < 835:
		return "deployment scaled", c.scale(ctx, random.IntN(workloads), 1+random.IntN(mostReplicas))
	case n < 845:
		return "deployment rolled", c.roll(ctx, random.IntN(workloads))
	case n < 850:
		return "pods of an app deleted", c.client.CoreV1().Pods(c.namespace(0)).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=web-0"})
	default:
		return "pod deleted", c.deletePod(ctx, random)
	}
}

func configName(i int) string { return fmt.Sprintf("config-%d", i) }
func widgetName(i int) string { return fmt.Sprintf("widget-%d", i) }

// writeConfig creates or updates a config map, of a few bytes to some kB.
func (c *churn) writeConfig(ctx context.Context, i int) error {
	next := c.next.Add(1)
	maps := c.client.CoreV1().ConfigMaps(c.namespace(i))
	size := 1 << (next % 13)
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configName(i), Labels: map[string]string{"half": fmt.Sprint(next % 2)}},
		Data:       map[string]string{"n": fmt.Sprint(next), "text": strings.Repeat("x", size)},
	}
	_, err := maps.Update(ctx, cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	}
	return err
}

// burst makes more changes than a slow reader can read.
func (c *churn) burst(ctx context.Context) error {
	for i := range configs {
		if err := c.writeConfig(ctx, i); err != nil {
			return err
		}
	}
	return nil
}

func (c *churn) scale(ctx context.Context, i, n int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n)
	_, err := c.client.AppsV1().Deployments(c.namespace(i)).Patch(ctx, fmt.Sprintf("web-%d", i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (c *churn) roll(ctx context.Context, i int) error {
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"rolled":"%d"}}}}}`, c.next.Add(1))
	_, err := c.client.AppsV1().Deployments(c.namespace(i)).Patch(ctx, fmt.Sprintf("web-%d", i), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (c *churn) deletePod(ctx context.Context, random *rand.Rand) error {
	namespace := c.namespace(random.IntN(namespaces))
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 20, ResourceVersion: "0"})
	if err != nil || len(list.Items) == 0 {
		return err
	}
	return c.client.CoreV1().Pods(namespace).Delete(ctx, list.Items[random.IntN(len(list.Items))].Name, metav1.DeleteOptions{})
}

const (
	definitions    = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	definitionName = "widgets.soak.tidings.io"
)

func widgetsPath(namespace string) string {
	if namespace == "" {
		return "/apis/soak.tidings.io/v1/widgets"
	}
	return "/apis/soak.tidings.io/v1/namespaces/" + namespace + "/widgets"
}

// define creates the custom resource, and waits until it is served.
func (c *churn) define(ctx context.Context) error {
	const manifest = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + definitionName + `"},"spec":{
		"group":"soak.tidings.io","scope":"Namespaced","names":{"plural":"widgets","singular":"widget","kind":"Widget","listKind":"WidgetList"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	err := c.rest.Post().AbsPath(definitions).SetHeader("Content-Type", "application/json").Body([]byte(manifest)).Do(ctx).Error()
	if err != nil {
		return err
	}
	for range 50 {
		if err = c.rest.Get().AbsPath(widgetsPath("")).Do(ctx).Error(); err == nil || !Sleep(ctx, 100*time.Millisecond) {
			break
		}
	}
	return err
}

func (c *churn) writeWidget(ctx context.Context, i int) error {
	name := widgetName(i)
	body, err := json.Marshal(map[string]any{
		"apiVersion": "soak.tidings.io/v1", "kind": "Widget",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"n": c.next.Add(1), "why": "<&>\u2028é"},
	})
	if err != nil {
		return err
	}
	err = c.rest.Patch(types.MergePatchType).AbsPath(widgetsPath(c.namespace(i)), name).Body(body).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		err = c.rest.Post().AbsPath(widgetsPath(c.namespace(i))).SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
	}
	return err
}
