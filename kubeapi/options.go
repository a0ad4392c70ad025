package kubeapi

import (
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidings-io/tidings/mirror"
)

// getOptions reads the parameters of a get.
func (c *call) getOptions() (metav1.GetOptions, error) {
	var options metav1.GetOptions
	values := c.r.URL.Query()
	if export := values["export"]; len(export) > 0 {
		wanted := true
		if err := runtime.Convert_Slice_string_To_bool(&export, &wanted, nil); err != nil {
			return options, apierrors.NewBadRequest(fmt.Sprintf("the export parameter cannot be parsed: %v", err))
		}
		if wanted {
			return options, apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
		}
	}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, &options); err != nil {
		return options, apierrors.NewBadRequest(err.Error())
	}
	return options, nil
}

// listOptions reads the parameters of a list or watch and completes the query.
func (c *call) listOptions() (*internalversion.ListOptions, error) {
	options := &internalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(c.r.URL.Query(), metav1.SchemeGroupVersion, options); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	internalversion.SetListOptionsDefaults(options, true)
	if errs := validation.ValidateListOptions(options, true); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if c.info.Verb == "watch" && !options.Watch { // by the path, as of old: till here it is a list for kube-apiserver, too
		options.Watch, c.oldPath = true, true
		internalversion.SetListOptionsDefaults(options, true)
	}
	if options.FieldSelector != nil {
		for _, r := range options.FieldSelector.Requirements() {
			if c.kind.custom && !c.q.Resource.Namespaced && r.Field == "metadata.namespace" || !c.q.Selectable(c.r.Context(), r.Field) {
				return nil, apierrors.NewBadRequest(c.kind.unselectable(r.Field))
			}
		}
	}
	if c.info.Name != "" {
		if s := options.FieldSelector; s == nil || s.Empty() {
			options.FieldSelector = fields.OneTermEqualSelector("metadata.name", c.info.Name)
		} else if name, ok := s.RequiresExactMatch("metadata.name"); !ok || name != c.info.Name {
			return nil, apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	c.q.Labels, c.q.Fields = options.LabelSelector, options.FieldSelector
	if c.q.Namespace == "" && c.q.Resource.Namespaced && options.FieldSelector != nil {
		// A request for all namespaces that selects one is one for that one, and
		// its continue tokens are of that one.
		c.q.Namespace, _ = options.FieldSelector.RequiresExactMatch("metadata.namespace")
	}
	return options, nil
}

// unselectable is kube-apiserver's way to say that a field cannot be selected
// by, which each kind has its own of.
func (k kind) unselectable(label string) string {
	switch {
	case k.custom:
	case k.gvk.Group == "batch" && k.gvk.Kind == "Job":
		return fmt.Sprintf("field label %q not supported for Job", label)
	case k.gvk.Group == "resource.k8s.io" && k.gvk.Kind == "ResourceSlice":
		return fmt.Sprintf("field label not supported for %s: %s", k.gvk, label)
	case !mirror.OwnFields(k.gvk.GroupKind()):
		return fmt.Sprintf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
	}
	return "field label not supported: " + label
}

// parseVersion reads a resourceVersion; "" is 0.
func parseVersion(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, field.ErrorList{field.Invalid(field.NewPath("resourceVersion"), s, err.Error())}.ToAggregate()
	}
	return version, nil
}
