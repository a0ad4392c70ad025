package kubeapi

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// getOptions parses the parameters of a get.
func getOptions(values url.Values) (metav1.GetOptions, error) {
	var options metav1.GetOptions
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

// nameError returns the API server's error if its storage does not allow the name, else
// err.
func nameError(name string, err error) error {
	if wrong := names.IsPathSegmentName(name); len(wrong) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(wrong, ";")))
	}
	return err
}

// listOptions parses the parameters of a list or watch. As in kube-apiserver, the
// parameters of a legacy watch are validated as those of a list.
func listOptions(values url.Values, legacy bool) (*internalversion.ListOptions, error) {
	options := &internalversion.ListOptions{}
	if err := metainternalversionscheme.ParameterCodec.DecodeParameters(values, metav1.SchemeGroupVersion, options); err != nil {
		return &internalversion.ListOptions{}, apierrors.NewBadRequest(err.Error()) // discard the partly decoded options
	}
	internalversion.SetListOptionsDefaults(options, true)
	if errs := validation.ValidateListOptions(options, true); len(errs) > 0 {
		return options, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if legacy && !options.Watch {
		options.Watch = true
		internalversion.SetListOptionsDefaults(options, true)
	}
	return options, nil
}

// sameName returns an error if the field selector and the path have different names.
func sameName(options *internalversion.ListOptions, name string) error {
	if s := options.FieldSelector; name != "" && s != nil && !s.Empty() {
		if selected, ok := s.RequiresExactMatch("metadata.name"); !ok || selected != name {
			return apierrors.NewBadRequest("fieldSelector metadata.name doesn't match requested name")
		}
	}
	return nil
}

// selectable returns an error if a field of the field selector is not selectable.
func (c *call) selectable() error {
	params := c.q.Params()
	if params.Fields == nil {
		return nil
	}
	for _, r := range params.Fields.Requirements() {
		if c.kind.custom && !c.q.Resource().Namespaced && r.Field == "metadata.namespace" || !c.q.Selectable(c.r.Context(), r.Field) {
			return apierrors.NewBadRequest(c.kind.unselectable(r.Field))
		}
	}
	return nil
}

// unselectable is kube-apiserver's message for a field that is not selectable. It depends
// on the kind.
func (k kind) unselectable(label string) string {
	switch {
	case k.custom:
	case k.gvk.Group == "batch" && k.gvk.Kind == "Job":
		return fmt.Sprintf("field label %q not supported for Job", label)
	case k.gvk.Group == "resource.k8s.io" && k.gvk.Kind == "ResourceSlice":
		return fmt.Sprintf("field label not supported for %s: %s", k.gvk, label)
	case !read.OwnFields(k.gvk.GroupKind()):
		return fmt.Sprintf("%q is not a known field selector: only %q, %q", label, "metadata.name", "metadata.namespace")
	}
	return "field label not supported: " + label
}

// parseVersion parses a resourceVersion. "" is 0.
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
