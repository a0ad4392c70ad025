package fakeapi

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
)

// resourceOf returns the resource of an object and a copy in its stored form.
func (c *Cluster) resourceOf(obj Object) (*resource, Object, error) {
	gvk, err := kindOf(obj)
	if err != nil {
		return nil, nil, err
	}
	c.mu.RLock()
	r, ok := c.kinds[gvk]
	c.mu.RUnlock()
	if !ok {
		return nil, nil, fmt.Errorf("fakeapi: no resource is served for %s", gvk)
	}
	stored, err := r.toStored(obj)
	return r, stored, err
}

// Create stores a copy of a new object, typed or unstructured, of any served kind,
// and returns the stored object in the same form. It sets the name (from
// generateName), uid and creationTimestamp if they are empty. Unlike over HTTP, the
// status is kept, and the namespace need not exist. Errors are those of a
// kube-apiserver, such as AlreadyExists.
func (c *Cluster) Create(obj Object) (Object, error) {
	r, stored, err := c.resourceOf(obj)
	if err != nil {
		return nil, err
	}
	rec, err := c.insert(r, stored)
	if err != nil {
		return nil, err
	}
	return r.likeInput(rec.obj, obj)
}

// Update replaces a whole object, including its status. If obj has a
// resourceVersion other than the current one, the error is a Conflict. An update
// that changes nothing is not a write.
func (c *Cluster) Update(obj Object) (Object, error) {
	r, stored, err := c.resourceOf(obj)
	if err != nil {
		return nil, err
	}
	rec, err := c.modify(r, obj.GetNamespace(), obj.GetName(), func(Object) (Object, error) { return stored, nil })
	if err != nil {
		return nil, err
	}
	return r.likeInput(rec.obj, obj)
}

// Put creates an object or, if there is one, updates it.
func (c *Cluster) Put(obj Object) (Object, error) {
	out, err := c.Update(obj)
	if apierrors.IsNotFound(err) {
		return c.Create(obj)
	}
	return out, err
}

// Delete removes an object at once, regardless of finalizers.
func (c *Cluster) Delete(gvr schema.GroupVersionResource, namespace, name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.resources[gvr]
	if !ok {
		return errNoResource(gvr)
	}
	rec, ok := r.objects.Get(r.key(namespace, name))
	if !ok {
		return errNotFound(r, name)
	}
	c.commit(r, watch.Deleted, rec, shallow(rec.obj))
	return nil
}

// insert stores a new object. It takes ownership of obj.
func (c *Cluster) insert(r *resource, obj Object) (*record, error) {
	if obj.GetName() == "" && obj.GetGenerateName() != "" {
		obj.SetName(obj.GetGenerateName() + rand.String(5))
	}
	if err := r.checkName(obj); err != nil {
		return nil, err
	}
	if obj.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	if obj.GetUID() == "" {
		obj.SetUID(uuid.NewUUID())
	}
	if stamp := obj.GetCreationTimestamp(); stamp.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.gone {
		return nil, errNoResource(r.gvr)
	}
	if _, ok := r.objects.Get(r.key(obj.GetNamespace(), obj.GetName())); ok {
		return nil, apierrors.NewAlreadyExists(r.group(), obj.GetName())
	}
	return c.commit(r, watch.Added, nil, obj), nil
}

func (r *resource) checkName(obj Object) error {
	at := field.NewPath("metadata")
	var errs field.ErrorList
	if obj.GetName() == "" {
		errs = append(errs, field.Required(at.Child("name"), "name or generateName is required"))
	}
	for _, msg := range content.IsPathSegmentName(obj.GetName()) {
		errs = append(errs, field.Invalid(at.Child("name"), obj.GetName(), msg))
	}
	switch {
	case r.info.Namespaced && obj.GetNamespace() == "":
		errs = append(errs, field.Required(at.Child("namespace"), ""))
	case !r.info.Namespaced && obj.GetNamespace() != "":
		errs = append(errs, field.Forbidden(at.Child("namespace"), "not allowed on this type"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(r.gvk.GroupKind(), obj.GetName(), errs)
	}
	return nil
}

// modify replaces an object with the result of change, in one step. change must
// not modify its argument, but may return it for no change; modify takes ownership
// of any other result. An object that is being deleted is removed with its last
// finalizer.
func (c *Cluster) modify(r *resource, namespace, name string, change func(Object) (Object, error)) (*record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec, ok := r.objects.Get(r.key(namespace, name))
	if !ok || r.gone {
		return nil, errNotFound(r, name)
	}
	obj, err := change(rec.obj)
	if err != nil {
		return nil, err
	}
	old := rec.obj
	if obj == old {
		return rec, nil
	}
	if rv := obj.GetResourceVersion(); rv != "" && rv != old.GetResourceVersion() {
		return nil, errConflict(r, name)
	}
	if uid := obj.GetUID(); uid != "" && uid != old.GetUID() {
		//lint:ignore ST1005 these are a kube-apiserver's own words
		return nil, apierrors.NewConflict(r.group(), name, fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", uid, old.GetUID()))
	}
	if obj.GetName() != old.GetName() || obj.GetNamespace() != old.GetNamespace() {
		return nil, apierrors.NewBadRequest("the name and the namespace of an object cannot change")
	}
	obj.SetUID(old.GetUID())
	obj.SetCreationTimestamp(old.GetCreationTimestamp())
	if obj.GetDeletionTimestamp() == nil {
		obj.SetDeletionTimestamp(old.GetDeletionTimestamp())
		obj.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	}
	obj.SetResourceVersion(old.GetResourceVersion())
	if equality.Semantic.DeepEqual(old, obj) {
		return rec, nil
	}
	now := c.commit(r, watch.Modified, rec, obj)
	if obj.GetDeletionTimestamp() != nil && len(old.GetFinalizers()) > 0 && len(obj.GetFinalizers()) == 0 {
		now = c.commit(r, watch.Deleted, now, shallow(obj))
	}
	return now, nil
}

// remove deletes an object as the API server does: an object with finalizers, and
// with [Options.GracefulPods] a pod on a node, is only marked. Deleting a namespace
// deletes its objects. done reports whether the object is gone.
func (c *Cluster) remove(r *resource, namespace, name string, opts *metav1.DeleteOptions, now time.Time) (rec *record, done bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rec, ok := r.objects.Get(r.key(namespace, name))
	if !ok {
		return nil, false, errNotFound(r, name)
	}
	if err := precondition(r, rec.obj, opts.Preconditions); err != nil {
		return nil, false, err
	}
	if len(opts.DryRun) > 0 {
		return rec, true, nil
	}
	var grace int64
	if pod, ok := rec.obj.(*corev1.Pod); ok && c.opts.GracefulPods && onNode(pod) {
		grace = 30
		if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = *s
		}
		if opts.GracePeriodSeconds != nil {
			grace = *opts.GracePeriodSeconds
		}
	}
	if len(rec.obj.GetFinalizers()) > 0 || grace > 0 {
		if rec.obj.GetDeletionTimestamp() != nil {
			return rec, false, nil
		}
		obj := rec.obj.DeepCopyObject().(Object)
		at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second).Truncate(time.Second))
		obj.SetDeletionTimestamp(&at)
		obj.SetDeletionGracePeriodSeconds(&grace)
		return c.commit(r, watch.Modified, rec, obj), false, nil
	}
	if r.gvr.Group == "" && r.gvr.Resource == "namespaces" {
		c.emptyNamespace(name)
	}
	return c.commit(r, watch.Deleted, rec, shallow(rec.obj)), true, nil
}

// onNode reports whether a kubelet has to terminate the pod.
func onNode(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

func precondition(r *resource, obj Object, p *metav1.Preconditions) error {
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != obj.GetUID():
		//lint:ignore ST1005 these are a kube-apiserver's own words
		return apierrors.NewConflict(r.group(), obj.GetName(), fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", *p.UID, obj.GetUID()))
	case p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion():
		//lint:ignore ST1005 these are a kube-apiserver's own words
		return apierrors.NewConflict(r.group(), obj.GetName(), errors.New("Precondition failed: the resourceVersion is not the current one"))
	}
	return nil
}

// emptyNamespace deletes everything in a namespace. The caller holds c.mu.
func (c *Cluster) emptyNamespace(name string) {
	for _, gvr := range c.order {
		r := c.resources[gvr]
		if !r.info.Namespaced {
			continue
		}
		for _, rec := range r.collect(c.rev, selection{namespace: name}, "", 0).items {
			c.commit(r, watch.Deleted, rec, shallow(rec.obj))
		}
	}
}
