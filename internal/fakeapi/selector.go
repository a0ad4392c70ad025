package fakeapi

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// selectable is the set of fields that field selectors of a resource may use.
type selectable struct {
	namespaced  bool
	names       []string
	values      func(Object, fields.Set) // adds the fields besides metadata
	unsupported func(label string) error // nil is the error of a resource without fields of its own
}

func (s selectable) check(label, value string) (string, string, error) {
	if label == "metadata.name" || label == "metadata.namespace" && s.namespaced {
		return label, value, nil
	}
	for _, name := range s.names {
		if label == name {
			return label, value, nil
		}
	}
	if s.unsupported != nil {
		return "", "", s.unsupported(label)
	}
	return "", "", fmt.Errorf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
}

func (s selectable) set(obj Object) fields.Set {
	set := fields.Set{"metadata.name": obj.GetName()}
	if s.namespaced {
		set["metadata.namespace"] = obj.GetNamespace()
	}
	if s.values != nil {
		s.values(obj, set)
	}
	return set
}

// matcher combines the selectors of a request. It returns nil if they select
// everything, and a BadRequest for unknown fields.
func (r *resource) matcher(opts *internalversion.ListOptions) (func(Object) bool, error) {
	byLabel, byField := opts.LabelSelector, opts.FieldSelector
	if byLabel == nil {
		byLabel = labels.Everything()
	}
	if byField == nil {
		byField = fields.Everything()
	}
	byField, err := byField.Transform(r.selectable.check)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if byLabel.Empty() && byField.Empty() {
		return nil, nil
	}
	return func(obj Object) bool {
		return byLabel.Matches(labels.Set(obj.GetLabels())) && (byField.Empty() || byField.Matches(r.selectable.set(obj)))
	}, nil
}

// builtinFields returns the selectable fields of a built-in kind.
func builtinFields(gvk schema.GroupVersionKind) selectable {
	s := selectable{namespaced: true}
	switch gvk.Kind {
	case "Pod":
		s.names = []string{"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName"}
		s.values = func(obj Object, set fields.Set) {
			pod := obj.(*corev1.Pod)
			set["spec.nodeName"] = pod.Spec.NodeName
			set["spec.restartPolicy"] = string(pod.Spec.RestartPolicy)
			set["spec.schedulerName"] = pod.Spec.SchedulerName
			set["spec.serviceAccountName"] = pod.Spec.ServiceAccountName
			set["spec.hostNetwork"] = strconv.FormatBool(pod.Spec.HostNetwork)
			set["status.phase"] = string(pod.Status.Phase)
			set["status.podIP"] = pod.Status.PodIP
			set["status.nominatedNodeName"] = pod.Status.NominatedNodeName
		}
	case "Node":
		s.namespaced = false
		s.names = []string{"spec.unschedulable"}
		s.values = func(obj Object, set fields.Set) {
			set["spec.unschedulable"] = strconv.FormatBool(obj.(*corev1.Node).Spec.Unschedulable)
		}
	case "Namespace":
		s.namespaced = false
		s.names = []string{"status.phase"}
		s.values = func(obj Object, set fields.Set) {
			set["status.phase"] = string(obj.(*corev1.Namespace).Status.Phase)
		}
	case "Secret":
		s.names = []string{"type"}
		s.values = func(obj Object, set fields.Set) { set["type"] = string(obj.(*corev1.Secret).Type) }
	case "Service":
		s.names = []string{"spec.clusterIP", "spec.type"}
		s.values = func(obj Object, set fields.Set) {
			set["spec.clusterIP"] = obj.(*corev1.Service).Spec.ClusterIP
			set["spec.type"] = string(obj.(*corev1.Service).Spec.Type)
		}
	case "Event":
		s.names = []string{"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
			"reason", "reportingComponent", "source", "type"}
		s.values = eventFields
	case "Job":
		s.names = []string{"status.successful"}
		s.values = func(obj Object, set fields.Set) {
			set["status.successful"] = strconv.Itoa(int(obj.(*batchv1.Job).Status.Succeeded))
		}
		s.unsupported = func(label string) error { return fmt.Errorf("field label %q not supported for Job", label) }
	}
	if len(s.names) > 0 && s.unsupported == nil {
		s.unsupported = func(label string) error { return fmt.Errorf("field label not supported: %s", label) }
	}
	return s
}

func eventFields(obj Object, set fields.Set) {
	event := obj.(*corev1.Event)
	set["involvedObject.kind"] = event.InvolvedObject.Kind
	set["involvedObject.namespace"] = event.InvolvedObject.Namespace
	set["involvedObject.name"] = event.InvolvedObject.Name
	set["involvedObject.uid"] = string(event.InvolvedObject.UID)
	set["involvedObject.apiVersion"] = event.InvolvedObject.APIVersion
	set["involvedObject.resourceVersion"] = event.InvolvedObject.ResourceVersion
	set["involvedObject.fieldPath"] = event.InvolvedObject.FieldPath
	set["reason"] = event.Reason
	set["reportingComponent"] = event.ReportingController
	set["source"] = event.Source.Component
	if set["source"] == "" {
		set["source"] = event.ReportingController
	}
	set["type"] = event.Type
}

// customFields makes fields of a custom resource selectable.
func customFields(namespaced bool, names []string) selectable {
	return selectable{
		namespaced: namespaced,
		names:      names,
		values: func(obj Object, set fields.Set) {
			for _, name := range names {
				value, _, _ := unstructured.NestedFieldNoCopy(obj.(*unstructured.Unstructured).Object, strings.Split(name, ".")...)
				set[name] = ""
				if value != nil {
					set[name] = fmt.Sprint(value)
				}
			}
		},
		unsupported: func(label string) error { return fmt.Errorf("field label not supported: %s", label) },
	}
}
