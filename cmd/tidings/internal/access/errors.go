package access

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	errNoAnswer = errors.New("no answer within the timeout")
	errNoSeat   = errors.New("too many reviews in flight")
)

// unauthorized has the words of kube-apiserver.
func unauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

// forbidden has the words of kube-apiserver.
func forbidden(c *Caller, a Attributes, reason string) error {
	message := html.Replace(forbiddenMessage(c, a))
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(message))
}

// html escapes a message, as kube-apiserver does, so that browsers do not take it for a
// page.
var html = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

func forbiddenMessage(c *Caller, a Attributes) string {
	if a.Resource == "" {
		return fmt.Sprintf("User %q cannot %s path %q", c.Name(), a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", c.Name(), a.Verb, resource, a.Group, where)
}

// unavailable is the error of a review that got no answer. The request is refused but
// may be repeated. The message has no details, since the caller may be unauthenticated;
// they are logged.
func (r *Reviewer) unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	message := fmt.Sprintf("access cannot be checked: the API server of cluster %s cannot be asked, it does not answer %s", r.name, what)
	if errors.Is(err, errNoSeat) {
		message = fmt.Sprintf("access cannot be checked: too many reviews are in flight at the API server of cluster %s to send %s; try again with fewer requests at a time", r.name, what)
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		message += "; the mirror's own user needs the ClusterRole system:auth-delegator, and the right to get the config map kube-system/extension-apiserver-authentication"
	}
	out := apierrors.NewServiceUnavailable(message)
	out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(max(r.options.ErrorTTL, time.Second) / time.Second)}
	return out
}

// isUnavailable reports whether the cluster gave no answer, or only that it cannot give
// one now. An API server that forbids the review is not unavailable.
func isUnavailable(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var network net.Error // all errors of http.Client are
	return errors.As(err, &network) || slices.ContainsFunc(
		[]error{errNoAnswer, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF},
		func(target error) bool { return errors.Is(err, target) })
}

// IsUnavailable reports whether an error means that the cluster could not be asked. It
// is not a denial.
func IsUnavailable(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusServiceUnavailable
}
