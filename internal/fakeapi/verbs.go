package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func (c *call) format() (format, error) {
	return negotiate(c.HTTP, shape{typed: c.res.typed, as: "PartialObjectMetadata"})
}

func (c *call) dryRun() bool { return c.HTTP.URL.Query().Get("dryRun") != "" }

func (c *call) serveCreate(w http.ResponseWriter) error {
	f, err := c.format()
	if err != nil {
		return err
	}
	obj, err := c.res.readBody(c.HTTP)
	if err != nil {
		return err
	}
	if err := c.checkNamespace(obj); err != nil {
		return err
	}
	if obj, err = c.res.startStatus(obj); err != nil {
		return err
	}
	obj.SetUID("")
	obj.SetCreationTimestamp(metav1.Time{})
	obj.SetDeletionTimestamp(nil)
	obj.SetDeletionGracePeriodSeconds(nil)
	if c.res.hasStatus {
		obj.SetGeneration(1)
	}
	if c.dryRun() {
		obj.SetCreationTimestamp(metav1.NewTime(time.Now()))
		f.write(w, http.StatusCreated, f.single(c.res, obj))
		return nil
	}
	rec, err := c.cluster.insert(c.res, obj)
	if err != nil {
		return err
	}
	f.write(w, http.StatusCreated, f.single(c.res, rec.obj))
	return nil
}

// checkNamespace sets the object's namespace to that of the request, and checks
// that it exists.
func (c *call) checkNamespace(obj Object) error {
	if !c.res.info.Namespaced {
		return nil
	}
	if c.Namespace == "" {
		return apierrors.NewBadRequest("namespace is required to create an object of this type")
	}
	if ns := obj.GetNamespace(); ns != "" && ns != c.Namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	obj.SetNamespace(c.Namespace)
	_, err := c.cluster.get(corev1.SchemeGroupVersion.WithResource("namespaces"), "", c.Namespace)
	return err
}

// startStatus returns a new object with its initial status: clients cannot set the
// status when they create an object.
func (r *resource) startStatus(obj Object) (Object, error) {
	if !r.hasStatus {
		return obj, nil
	}
	switch o := obj.(type) {
	case *corev1.Pod:
		o.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSBurstable}
		return o, nil
	case *corev1.Namespace:
		o.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
		return o, nil
	}
	return r.mix(obj, r.empty())
}

// mix returns a copy of obj with the status of another object.
func (r *resource) mix(obj, status Object) (Object, error) {
	to, err := r.toUnstructured(obj)
	if err != nil {
		return nil, err
	}
	from, err := r.toUnstructured(status)
	if err != nil {
		return nil, err
	}
	if s, ok := from.Object["status"]; ok {
		to.Object["status"] = s
	} else {
		delete(to.Object, "status")
	}
	return r.toStored(to)
}

// replace returns the result of a write to the current object: a write to the
// resource changes everything but the status, a write to the status subresource
// changes only the status. A changed spec is a new generation.
func (c *call) replace(current, wanted Object) (Object, error) {
	if !c.res.hasStatus {
		return wanted, nil
	}
	if c.Subresource == "status" {
		obj, err := c.res.mix(current, wanted)
		if err == nil {
			obj.SetResourceVersion(wanted.GetResourceVersion())
			obj.SetUID(wanted.GetUID())
		}
		return obj, err
	}
	obj, err := c.res.mix(wanted, current)
	if err != nil {
		return nil, err
	}
	was, err := c.res.toUnstructured(current)
	if err != nil {
		return nil, err
	}
	is, err := c.res.toUnstructured(obj)
	if err != nil {
		return nil, err
	}
	obj.SetGeneration(current.GetGeneration())
	if current.GetGeneration() > 0 && !equality.Semantic.DeepEqual(was.Object["spec"], is.Object["spec"]) {
		obj.SetGeneration(current.GetGeneration() + 1)
	}
	return obj, nil
}

func (c *call) serveUpdate(w http.ResponseWriter) error {
	f, err := c.format()
	if err != nil {
		return err
	}
	wanted, err := c.res.readBody(c.HTTP)
	if err != nil {
		return err
	}
	if wanted.GetName() == "" {
		wanted.SetName(c.Name)
	}
	if wanted.GetNamespace() == "" && c.res.info.Namespaced {
		wanted.SetNamespace(c.Namespace)
	}
	if wanted.GetName() != c.Name || wanted.GetNamespace() != c.Namespace {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", wanted.GetName(), c.Name))
	}
	return c.finish(w, f, func(current Object) (Object, error) { return c.replace(current, wanted) })
}

// finish stores the result of change and responds with it.
func (c *call) finish(w http.ResponseWriter, f format, change func(Object) (Object, error)) error {
	if c.dryRun() {
		rec, err := c.cluster.get(c.Resource, c.Namespace, c.Name)
		if err != nil {
			return err
		}
		obj, err := change(rec.obj)
		if err != nil {
			return err
		}
		f.write(w, http.StatusOK, f.single(c.res, obj))
		return nil
	}
	rec, err := c.cluster.modify(c.res, c.Namespace, c.Name, change)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, f.single(c.res, rec.obj))
	return nil
}

func (c *call) servePatch(w http.ResponseWriter) error {
	f, err := c.format()
	if err != nil {
		return err
	}
	patch, err := io.ReadAll(c.HTTP.Body)
	if err != nil {
		return badBody(err)
	}
	mediaType, _, _ := strings.Cut(c.HTTP.Header.Get("Content-Type"), ";")
	apply, err := c.res.patcher(types.PatchType(mediaType), patch)
	if err != nil {
		return err
	}
	return c.finish(w, f, func(current Object) (Object, error) {
		doc, err := c.res.marshalJSON(current)
		if err != nil {
			return nil, err
		}
		if doc, err = apply(doc); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", c.res.group(), c.Name, err.Error(), 0, false)
		}
		wanted, err := c.res.decode(doc, runtime.ContentTypeJSON)
		if err != nil {
			return nil, err
		}
		return c.replace(current, wanted)
	})
}

// patcher parses a patch and returns a function that applies it.
func (r *resource) patcher(kind types.PatchType, patch []byte) (func(doc []byte) ([]byte, error), error) {
	switch {
	case kind == types.JSONPatchType:
		ops, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return ops.Apply, nil
	case kind == types.MergePatchType || kind == types.StrategicMergePatchType && r.typed:
		if !json.Valid(patch) {
			return nil, apierrors.NewBadRequest("the patch is not valid JSON")
		}
		if kind == types.MergePatchType {
			return func(doc []byte) ([]byte, error) { return jsonpatch.MergePatch(doc, patch) }, nil
		}
		return func(doc []byte) ([]byte, error) { return strategicpatch.StrategicMergePatch(doc, patch, r.empty()) }, nil
	}
	if kind == types.ApplyPatchType || kind == types.ApplyCBORPatchType {
		return nil, errNoApply()
	}
	accepted := []string{string(types.JSONPatchType), string(types.MergePatchType)}
	if r.typed {
		accepted = append(accepted, string(types.StrategicMergePatchType))
	}
	return nil, errUnsupportedMediaType(accepted)
}

func (c *call) serveDelete(w http.ResponseWriter) error {
	f, err := c.format()
	if err != nil {
		return err
	}
	opts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	rec, done, err := c.cluster.remove(c.res, c.Namespace, c.Name, opts, time.Now())
	if err != nil {
		return err
	}
	if !done || c.res.gvk.Kind == "Pod" && c.res.typed {
		f.write(w, http.StatusOK, f.single(c.res, rec.obj))
		return nil
	}
	f.write(w, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: c.Name, Group: c.Resource.Group, Kind: c.Resource.Resource, UID: rec.obj.GetUID()},
	})
	return nil
}

func (c *call) deleteOptions() (*metav1.DeleteOptions, error) {
	opts := &metav1.DeleteOptions{}
	if err := readOptions(c.HTTP, corev1.SchemeGroupVersion.WithKind("DeleteOptions"), opts); err != nil {
		return nil, err
	}
	if c.dryRun() {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	return opts, nil
}

func (c *call) serveDeleteCollection(w http.ResponseWriter) error {
	f, err := negotiate(c.HTTP, shape{typed: c.res.typed, as: "PartialObjectMetadataList"})
	if err != nil {
		return err
	}
	deleteOpts, err := c.deleteOptions()
	if err != nil {
		return err
	}
	opts, sel, err := c.listOptions()
	if err != nil {
		return err
	}
	p, lm, err := c.list(opts, sel)
	if err != nil {
		return err
	}
	for _, rec := range p.items {
		_, _, err := c.cluster.remove(c.res, rec.obj.GetNamespace(), rec.obj.GetName(), deleteOpts, time.Now())
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	list, err := f.list(c.res, p.items, lm)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, list)
	return nil
}
