package fakeapi

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// serveScale serves the scale subresource, which kubectl scale and autoscalers
// use: the replicas of an object of any kind.
func (c *call) serveScale(w http.ResponseWriter) error {
	f, err := negotiate(c.HTTP, shape{typed: true})
	if err != nil {
		return err
	}
	rec, err := c.cluster.get(c.Resource, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	switch c.Verb {
	case "get":
	case "update", "patch":
		body, err := io.ReadAll(c.HTTP.Body)
		if err != nil {
			return badBody(err)
		}
		rec, err = c.cluster.modify(c.res, c.Namespace, c.Name, func(current Object) (Object, error) { return c.rescale(current, body) })
		if err != nil {
			return err
		}
	default:
		return apierrors.NewMethodNotSupported(c.res.group(), c.Verb)
	}
	scale, err := c.res.scaleOf(rec.obj)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, scale)
	return nil
}

// rescale returns the object with the replicas of the Scale, or of the patched
// Scale, in body.
func (c *call) rescale(current Object, body []byte) (Object, error) {
	scale, err := c.res.scaleOf(current)
	if err != nil {
		return nil, err
	}
	if c.Verb == "update" {
		scale = &autoscalingv1.Scale{}
		if _, _, err := codecs.UniversalDeserializer().Decode(body, nil, scale); err != nil {
			return nil, badBody(err)
		}
	} else {
		doc, err := json.Marshal(scale)
		if err != nil {
			return nil, err
		}
		mediaType, _, _ := strings.Cut(c.HTTP.Header.Get("Content-Type"), ";")
		apply, err := c.res.patcher(types.PatchType(mediaType), body)
		if err != nil {
			return nil, err
		}
		if doc, err = apply(doc); err != nil {
			return nil, badBody(err)
		}
		if err := json.Unmarshal(doc, scale); err != nil {
			return nil, badBody(err)
		}
	}
	if scale.Spec.Replicas < 0 {
		return nil, apierrors.NewBadRequest("spec.replicas: must not be negative")
	}
	u, err := c.res.toUnstructured(current)
	if err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(u.Object, int64(scale.Spec.Replicas), "spec", "replicas"); err != nil {
		return nil, err
	}
	u.SetResourceVersion(scale.ResourceVersion)
	wanted, err := c.res.toStored(u)
	if err != nil {
		return nil, err
	}
	return c.replace(current, wanted)
}

// scaleOf returns the Scale of an object.
func (r *resource) scaleOf(obj Object) (*autoscalingv1.Scale, error) {
	u, err := r.toUnstructured(obj)
	if err != nil {
		return nil, err
	}
	scale := &autoscalingv1.Scale{
		TypeMeta: metav1.TypeMeta{Kind: "Scale", APIVersion: "autoscaling/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
	}
	wanted, found, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if !found {
		wanted = 1
	}
	has, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
	scale.Spec.Replicas, scale.Status.Replicas = int32(wanted), int32(has)
	if selector, found, _ := unstructured.NestedMap(u.Object, "spec", "selector"); found {
		ls := &metav1.LabelSelector{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(selector, ls); err != nil {
			return nil, err
		}
		scale.Status.Selector = metav1.FormatLabelSelector(ls)
	}
	return scale, nil
}
