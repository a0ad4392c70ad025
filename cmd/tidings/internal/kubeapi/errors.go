package kubeapi

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// notFoundPage is kube-apiserver's answer to unknown paths.
func notFoundPage(w http.ResponseWriter) { http.Error(w, "404 page not found", http.StatusNotFound) }

// refusal is the error of a request that is not a read of a mirrored resource.
func (c *call) refusal() error {
	what := c.Info.Resource
	if c.Info.Subresource != "" {
		what += "/" + c.Info.Subresource
	}
	message := fmt.Sprintf("this is a read-only mirror of the cluster: it gets, lists and watches, but does not %s %s; ask the cluster's API server itself, or start the mirror with --passthrough", c.Info.Verb, what)
	if c.r.Method == http.MethodGet {
		message = fmt.Sprintf("this is a mirror of the cluster that holds what can be listed and watched, which %s cannot; ask the cluster's API server itself, or start the mirror with --passthrough", what)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusMethodNotAllowed, Reason: metav1.StatusReasonMethodNotAllowed, Message: message,
		Details: &metav1.StatusDetails{Group: c.Info.APIGroup, Kind: c.Info.Resource, Name: c.Info.Name},
	}}
}

// statusOf returns the Status of an error.
func (c *call) statusOf(err error) *metav1.Status {
	var known apierrors.APIStatus
	var tooLarge *read.TooLargeError
	var of *mirror.Error
	switch {
	case errors.As(err, &tooLarge):
		status := tooLargeStatus(tooLarge)
		if c.kind.uncached() && c.params.Verb == read.Get {
			status.ErrStatus.Details.RetryAfterSeconds = 0
		}
		known = status
	case errors.As(err, &of) && of.Reason != "":
		known = c.mirrorStatus(of)
	case errors.As(err, &known):
	default:
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	if s.Status == "" {
		s.Status = metav1.StatusFailure
	}
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	s.Kind, s.APIVersion = "Status", "v1"
	return &s
}

func tooLargeStatus(e *read.TooLargeError) *apierrors.StatusError {
	out := apierrors.NewTimeoutError(e.Error(), 1)
	out.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
	return out
}

// mirrorStatus returns the Status of an error of the mirror.
func (c *call) mirrorStatus(e *mirror.Error) *apierrors.StatusError {
	group := c.params.Resource.GroupResource()
	retry := int(math.Ceil(e.Retry.Seconds()))
	unavailable := apierrors.NewServiceUnavailable(e.Message)
	unavailable.ErrStatus.Details = &metav1.StatusDetails{Group: group.Group, Kind: group.Resource, RetryAfterSeconds: int32(max(retry, 1))}
	switch e.Reason {
	case mirror.UnknownCluster:
		return plainStatus(http.StatusNotFound, metav1.StatusReasonNotFound, e.Message)
	case mirror.ClusterNeeded, mirror.Invalid, mirror.NotOffered:
		return apierrors.NewBadRequest(e.Message)
	case mirror.NotMirrored, mirror.Withheld, mirror.Forbidden:
		out := plainStatus(http.StatusForbidden, metav1.StatusReasonForbidden, e.Message)
		out.ErrStatus.Details = &metav1.StatusDetails{Group: group.Group, Kind: group.Resource}
		return out
	case mirror.UnknownResource:
		return plainStatus(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
	case mirror.NotFound:
		return apierrors.NewNotFound(group, c.params.Name)
	case mirror.Expired:
		return apierrors.NewResourceExpired(e.Message)
	}
	return unavailable // because of the cluster, the credentials, or a list that is not complete
}

func plainStatus(code int32, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// fail answers with an error, in the requested form if possible.
func (c *call) fail(err error) { WriteStatus(c.w, c.r, c.statusOf(err)) }

// WriteStatus answers a request with a Status and its code, in the requested form or, if
// that is not possible, as JSON, as kube-apiserver does.
func WriteStatus(w http.ResponseWriter, r *http.Request, s *metav1.Status) {
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	_, info, refused := negotiation.NegotiateOutputMediaType(r, scheme.Codecs, negotiation.DefaultEndpointRestrictions)
	if refused != nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(s.Code))
		_, _ = w.Write(indented(marshal(s)))
		return
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(int(s.Code))
	_ = info.Serializer.Encode(s, w) // an error means that the client is gone
}
