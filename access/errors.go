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
	errSilent  = errors.New("no answer in time")
	errCrowded = errors.New("too many questions are under way")
)

// unauthorized has the words of a kube-apiserver.
func unauthorized() error { return apierrors.NewUnauthorized("Unauthorized") }

// forbidden has the words of a kube-apiserver.
func forbidden(c *Caller, a Attributes, reason string) error {
	message := html.Replace(forbiddenMessage(c, a))
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(message))
}

// html keeps a message from being taken for a page.
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

// unanswered is the error of a question that the cluster did not answer, which
// is refused like a no but may be asked again. Why not is for the log: whoever
// asks may be nobody.
func (r *Reviewer) unanswered(ctx context.Context, asking string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	message := fmt.Sprintf("nothing is shown that the API server of cluster %s cannot be asked about, and it does not answer %s", r.name, asking)
	if errors.Is(err, errCrowded) {
		message = fmt.Sprintf("too many questions about callers are under way at the API server of cluster %s for %s to be sent: ask again, with fewer requests at a time", r.name, asking)
	}
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		message += "; the mirror's own user needs the rights of the ClusterRole system:auth-delegator, and to get the config map kube-system/extension-apiserver-authentication"
	}
	out := apierrors.NewServiceUnavailable(message)
	out.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(max(r.options.Fail, time.Second) / time.Second)}
	return out
}

// isSilence says that the cluster did not answer a question, or only that it
// cannot at the moment. That it refuses to answer the mirror is something else.
func isSilence(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := status.Status().Code
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
	}
	var network net.Error // which all errors of http.Client are
	return errors.As(err, &network) || slices.ContainsFunc(
		[]error{errSilent, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF},
		func(silence error) bool { return errors.Is(err, silence) })
}

// IsUnanswered says that an error is not a no: the cluster could not be asked.
func IsUnanswered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusServiceUnavailable
}
