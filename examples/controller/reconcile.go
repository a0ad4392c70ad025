package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/tidings-io/tidings/informer"
)

// minAvailable is the label that asks for a budget.
const minAvailable = "example.com/min-available"

type controller struct {
	deployments *informer.Informer[*appsv1.Deployment]
	budgets     *informer.Informer[*policyv1.PodDisruptionBudget]
	client      kubernetes.Interface
	queue       workqueue.TypedRateLimitingInterface[types.NamespacedName]
	log         *slog.Logger
}

// newController creates the controller and its informers. A test may give it a factory
// and a client of an informertest.Server.
func newController(factory *informer.Factory, client kubernetes.Interface, log *slog.Logger) (*controller, error) {
	c := &controller{client: client, log: log}
	c.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]())
	var err error
	if c.deployments, err = informer.For[*appsv1.Deployment](factory, informer.LabelSelector(minAvailable)); err != nil {
		return nil, err
	}
	if c.budgets, err = informer.For[*policyv1.PodDisruptionBudget](factory); err != nil {
		return nil, err
	}
	c.deployments.AddHandler(informer.HandlerFunc[*appsv1.Deployment](func(e informer.Event[*appsv1.Deployment]) {
		if e.Object != nil { // Synced has none
			c.queue.Add(types.NamespacedName{Namespace: e.Object.Namespace, Name: e.Object.Name})
		}
	}), informer.Named("deployments"))
	// A budget that somebody has changed or deleted is put right.
	c.budgets.AddHandler(informer.HandlerFunc[*policyv1.PodDisruptionBudget](func(e informer.Event[*policyv1.PodDisruptionBudget]) {
		if e.Object != nil && metav1.GetControllerOf(e.Object) != nil {
			c.queue.Add(types.NamespacedName{Namespace: e.Object.Namespace, Name: metav1.GetControllerOf(e.Object).Name})
		}
	}), informer.Named("budgets"))
	return c, nil
}

// run reconciles until ctx ends, and then finishes the objects in progress.
func (c *controller) run(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next() {
			}
		})
	}
	<-ctx.Done()
	c.log.Info("finishing", "queued", c.queue.Len())
	c.queue.ShutDown()
	wg.Wait()
}

// next reconciles one object. It returns false when the queue is shut down.
func (c *controller) next() bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	// Not the context of the program: an object in progress is finished.
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.reconcile(ctx, key); err != nil {
		c.log.Warn("will be tried again", "deployment", key.String(), "tries", c.queue.NumRequeues(key), "err", err)
		c.queue.AddRateLimited(key)
		return true
	}
	c.queue.Forget(key)
	return true
}

// reconcile makes the budget of a deployment what it should be.
func (c *controller) reconcile(ctx context.Context, key types.NamespacedName) error {
	deployment, ok := c.deployments.Get(key.Namespace, key.Name)
	if !ok || deployment.DeletionTimestamp != nil {
		return nil // the garbage collector deletes the budget
	}
	want := budgetOf(deployment)
	budgets := c.client.PolicyV1().PodDisruptionBudgets(key.Namespace)
	have, ok := c.budgets.Get(key.Namespace, want.Name)
	var written *policyv1.PodDisruptionBudget
	var err error
	switch {
	case !ok:
		written, err = budgets.Create(ctx, want, metav1.CreateOptions{})
	case !metav1.IsControlledBy(have, deployment):
		c.log.Warn("the budget belongs to somebody else", "deployment", key.String(), "budget", want.Name)
		return nil
	case have.Spec.MinAvailable != nil && *have.Spec.MinAvailable == *want.Spec.MinAvailable:
		return nil
	default:
		change := have.DeepCopy() // objects of the informer are shared: copy before changing
		change.Spec = want.Spec
		written, err = budgets.Update(ctx, change, metav1.UpdateOptions{})
	}
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		c.log.Error("the budget is refused; the label must change", "deployment", key.String(), "err", err)
		return nil // a retry would not help
	}
	if err != nil {
		return fmt.Errorf("write the budget: %w", err)
	}
	c.log.Info("wrote the budget", "deployment", key.String(), "minAvailable", want.Spec.MinAvailable.String())
	// The next look at this deployment must see the budget that was just written.
	return c.budgets.WaitFor(ctx, written.ResourceVersion)
}

// budgetOf returns the budget that a deployment should have.
func budgetOf(d *appsv1.Deployment) *policyv1.PodDisruptionBudget {
	least := intstr.Parse(d.Labels[minAvailable])
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: d.Spec.Selector},
	}
}
