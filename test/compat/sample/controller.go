package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
)

// byOwner is the index of pods by namespace and name of their ReplicaSet.
const byOwner = "owner"

// catchUp is how long a worker waits for the caches to contain its writes.
const catchUp = 10 * time.Second

type controller struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
	sets    appslisters.ReplicaSetLister
	setsAt  cache.Store
	pods    cache.Indexer
	synced  []cache.InformerSynced // of the handlers
	queue   workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

// newController returns a controller of the objects in the factory's informers.
func newController(client kubernetes.Interface, factory informers.SharedInformerFactory) (*controller, error) {
	sets, pods := factory.Apps().V1().ReplicaSets(), factory.Core().V1().Pods()
	c := &controller{
		client: client, factory: factory, sets: sets.Lister(), setsAt: sets.Informer().GetStore(), pods: pods.Informer().GetIndexer(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	if err := pods.Informer().AddIndexers(cache.Indexers{byOwner: func(obj any) ([]string, error) {
		name, ok := owner(obj)
		if !ok {
			return nil, nil
		}
		return []string{name.String()}, nil
	}}); err != nil {
		return nil, err
	}
	for informer, nameOf := range map[cache.SharedIndexInformer]func(obj any) (cache.ObjectName, bool){
		sets.Informer(): func(obj any) (cache.ObjectName, bool) {
			name, err := cache.DeletionHandlingObjectToName(obj)
			return name, err == nil
		},
		pods.Informer(): owner,
	} {
		enqueue := func(obj any) {
			if name, ok := nameOf(obj); ok {
				c.queue.Add(name)
			}
		}
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    enqueue,
			UpdateFunc: func(_, obj any) { enqueue(obj) },
			DeleteFunc: enqueue,
		})
		if err != nil {
			return nil, err
		}
		c.synced = append(c.synced, registration.HasSynced)
	}
	return c, nil
}

// owner returns the ReplicaSet that owns a pod.
func owner(obj any) (cache.ObjectName, bool) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return cache.ObjectName{}, false
	}
	of := metav1.GetControllerOf(pod)
	if of == nil || of.Kind != "ReplicaSet" {
		return cache.ObjectName{}, false
	}
	return cache.NewObjectName(pod.Namespace, of.Name), true
}

// run runs the controller until ctx ends.
func (c *controller) run(ctx context.Context, workers int) error {
	c.factory.Start(ctx.Done())
	defer c.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced...) {
		return fmt.Errorf("wait for the caches: %w", context.Cause(ctx))
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer c.queue.ShutDown()
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	return nil
}

// next processes one name from the queue. It returns false when the queue is
// shut down.
func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(ctx, name); err != nil {
		if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Try again later", "replicaSet", name)
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

// sync reconciles the pods of one ReplicaSet, then its status.
func (c *controller) sync(ctx context.Context, name cache.ObjectName) error {
	set, err := c.sets.ReplicaSets(name.Namespace).Get(name.Name)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	want := map[string]*corev1.Pod{}
	if err == nil {
		for i := range ptr.Deref(set.Spec.Replicas, 1) {
			pod := podOf(set, i)
			want[pod.Name] = pod
		}
	}
	have, err := c.pods.ByIndex(byOwner, name.String())
	if err != nil {
		return err
	}
	for _, obj := range have {
		pod := obj.(*corev1.Pod)
		should := want[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil:
			return nil // its deletion enqueues the set again
		case should == nil, !metav1.IsControlledBy(pod, set), pod.Spec.Containers[0].Image != should.Spec.Containers[0].Image:
			gone, err := c.remove(ctx, pod)
			if err != nil || !gone {
				return err
			}
			continue // created again below, if it should exist
		case !maps.Equal(pod.Labels, should.Labels):
			pod = pod.DeepCopy()
			pod.Labels = should.Labels
			updated, err := c.client.CoreV1().Pods(pod.Namespace).Update(ctx, pod, metav1.UpdateOptions{})
			if err := c.written(ctx, c.pods, updated, err); err != nil {
				return err
			}
		}
		delete(want, pod.Name)
	}
	for _, pod := range want {
		created, err := c.client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err := c.written(ctx, c.pods, created, err); err != nil {
			return err
		}
	}
	if set == nil || set.Status.ObservedGeneration == set.Generation && set.Status.Replicas == ptr.Deref(set.Spec.Replicas, 1) {
		return nil
	}
	set = set.DeepCopy()
	set.Status.ObservedGeneration, set.Status.Replicas = set.Generation, ptr.Deref(set.Spec.Replicas, 1)
	updated, err := c.client.AppsV1().ReplicaSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
	return c.written(ctx, c.setsAt, updated, err)
}

// podOf returns the i-th pod of a ReplicaSet.
func podOf(set *appsv1.ReplicaSet, i int32) *corev1.Pod {
	labels := maps.Clone(set.Spec.Template.Labels)
	for _, name := range []string{"sample", "colour"} { // copied to the pods
		if value, ok := set.Labels[name]; ok {
			labels[name] = value
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, i), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: set.Spec.Template.Spec,
	}
}

// remove deletes a pod, but not another one of the same name. A running pod is
// not gone at once.
func (c *controller) remove(ctx context.Context, pod *corev1.Pod) (gone bool, err error) {
	err = c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	return gone, c.await(ctx, func() (bool, error) {
		obj, there, err := c.pods.GetByKey(cache.MetaObjectToName(pod).String())
		gone = !there || obj.(*corev1.Pod).UID != pod.UID
		return gone || obj.(*corev1.Pod).DeletionTimestamp != nil, err
	})
}

// written waits until a store contains a write. The next step then does not
// depend on how far a cache lags: no pod is created twice, and no object is
// overwritten with an older version.
func (c *controller) written(ctx context.Context, store cache.Store, object metav1.Object, err error) error {
	if err != nil {
		return err
	}
	return c.await(ctx, func() (bool, error) {
		order, err := resourceversion.CompareResourceVersion(store.LastStoreSyncResourceVersion(), object.GetResourceVersion())
		return order >= 0, err
	})
}

func (c *controller) await(ctx context.Context, there func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, catchUp, errors.New("the caches do not catch up"))
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) { return there() })
	if wait.Interrupted(err) {
		return context.Cause(ctx)
	}
	return err
}
