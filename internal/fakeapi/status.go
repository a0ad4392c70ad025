package fakeapi

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The errors below carry the words of a kube-apiserver, because clients and
// people match on them.

func errNotFound(r *resource, name string) error {
	return apierrors.NewNotFound(r.group(), name)
}

// errNoResource is what client-go makes of a kube-apiserver's plain 404.
func errNoResource(gvr schema.GroupVersionResource) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "", gvr.GroupResource(), "", "404 page not found", 0, true)
}

func errConflict(r *resource, name string) error {
	return apierrors.NewConflict(r.group(), name,
		errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func errTooLarge(want, now uint64) error {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", want, now), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type:    metav1.CauseTypeResourceVersionTooLarge,
		Message: "Too large resource version",
	}}
	return err
}

func errWatchTooOld(rev, floor uint64) error {
	return apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rev, floor))
}

func errListTooOld() error {
	return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
}

// errContinueTooOld offers a token to go on with at the newest revision.
func errContinueTooOld(token string) error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old " +
		"to display a consistent list result. You can start a new list without " +
		"the continue parameter, or use the continue token in this response to " +
		"retrieve the remainder of the results. Continuing with the provided " +
		"token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned " +
		"and now may show up in the list.")
	err.ErrStatus.Continue = token
	return err
}

func errNotAcceptable(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusNotAcceptable,
		Reason:  metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("only the following media types are accepted: %v", accepted),
	}}
}

func errUnsupportedMediaType(accepted []string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("the body of the request was in an unknown format - accepted media types include: %v", accepted),
	}}
}

// errNoApply is not one of a kube-apiserver, which has server-side apply.
func errNoApply() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusUnsupportedMediaType,
		Reason:  metav1.StatusReasonUnsupportedMediaType,
		Message: "this API server in memory has no server-side apply: create, update or patch the object instead, or use kubectl apply without --server-side",
	}}
}

// toStatus is the Status object that tells a client of an error.
func toStatus(err error) *metav1.Status {
	status := metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusInternalServerError,
		Reason:  metav1.StatusReasonInternalError,
		Message: err.Error(),
	}
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		status = known.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if status.Code == 0 {
		status.Code = http.StatusInternalServerError
	}
	return &status
}

func badBody(err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized: %v", err))
}

func badKind(got, want schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: the object provided is of another kind than the resource",
		got.Kind, got.Version, want.Kind))
}
