package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/munnerz/goautoneg"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/cluster"
)

// maxReview is the largest body of a review, in either direction.
const maxReview = 3 << 20

// selfReviews are the reviews that callers may create about themselves.
var selfReviews = map[schema.GroupVersionResource]func() runtime.Object{
	authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"): func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
	authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews"):  func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
	authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"):      func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
}

// IsSelfReview reports whether a request reviews its own caller, with a
// SelfSubjectAccessReview, SelfSubjectRulesReview or SelfSubjectReview.
func IsSelfReview(info *request.RequestInfo) bool {
	_, ok := selfReviews[reviewResource(info)]
	plain := "/apis/" + info.APIGroup + "/" + info.APIVersion + "/" + info.Resource
	return ok && strings.TrimRight(info.Path, "/") == plain && info.IsResourceRequest && info.Verb == "create" && info.Namespace == "" && info.Name == "" && info.Subresource == ""
}

func reviewResource(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// ServeSelfReview answers a request that [IsSelfReview]. The review of a caller with a
// token is sent to the cluster with that token, so the answer is the cluster's to the
// byte. For a caller with a certificate, the mirror answers a SelfSubjectReview by
// itself, and a SelfSubjectAccessReview by a SubjectAccessReview. The list of all
// rights cannot be had that way, so a SelfSubjectRulesReview is answered as incomplete,
// with no rules. If there is an error, nothing has been written.
func (r *Reviewer) ServeSelfReview(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, caller *Caller) error {
	if caller.byToken {
		err := forward(w, req, info, r.anonymous, r.baseURL, r.options.Timeout, func(h http.Header) { caller.SetCredentials(h) })
		return r.forwardError(req, err)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), r.options.Timeout, errNoAnswer)
	defer cancel()
	body, err := readBody(req)
	if err != nil {
		return err
	}
	review := selfReviews[reviewResource(info)]()
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, review); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	switch review := review.(type) {
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = caller.info
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status, err = r.subjectAccessReview(ctx, caller, func(spec *authorizationv1.SubjectAccessReviewSpec) {
			spec.ResourceAttributes, spec.NonResourceAttributes = review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
		})
		var status apierrors.APIStatus
		if errors.As(err, &status) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			return err
		}
		if err != nil {
			return r.unavailable(req.Context(), "a SubjectAccessReview", err)
		}
	case *authorizationv1.SelfSubjectRulesReview:
		review.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: true,
			EvaluationError: "the rights of a caller with a client certificate cannot be listed: use a SelfSubjectAccessReview, or a bearer token",
		}
	}
	return writeReview(w, req, review)
}

func (r *Reviewer) forwardError(req *http.Request, err error) error {
	const what = "a review of the caller itself"
	var unavailable *unavailableError
	if errors.As(err, &unavailable) {
		r.warnUnavailable(what, unavailable.err)
		return r.unavailable(req.Context(), what, unavailable.err)
	}
	return err
}

// ServeMirrorSelfReview answers a request that [IsSelfReview] if callers are not
// authenticated: they have the rights of the mirror, whose credentials the review is
// sent with.
func ServeMirrorSelfReview(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, c *cluster.Cluster) error {
	err := forward(w, req, info, c.HTTPClient(), c.BaseURL().String(), Options{}.withDefaults().Timeout, func(http.Header) {})
	var unavailable *unavailableError
	if errors.As(err, &unavailable) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the API server of cluster %s cannot be asked: %s", c.Name(), cluster.PublicMessage(unavailable.err)))
	}
	return err
}

func readBody(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxReview+1))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", tooLarge.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("the request's body cannot be read")
	case len(body) > maxReview:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReview))
	}
	return body, nil
}

// unavailableError means that the cluster gave no answer.
type unavailableError struct{ err error }

func (e *unavailableError) Error() string { return e.err.Error() }

// forward sends the review to the cluster and copies its response.
func forward(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, client *http.Client, base string, timeout time.Duration, setCredentials func(http.Header)) error {
	ctx, cancel := context.WithTimeoutCause(req.Context(), timeout, errNoAnswer)
	defer cancel()
	body, err := readBody(req)
	if err != nil {
		return err
	}
	gvr := reviewResource(info)
	url := strings.TrimSuffix(base, "/") + "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
	if req.URL.RawQuery != "" {
		url += "?" + req.URL.RawQuery
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return apierrors.NewBadRequest("the request cannot be forwarded")
	}
	for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
		if values := req.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	setCredentials(out.Header)
	resp, err := client.Do(out)
	if err != nil {
		return &unavailableError{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReview))
	if err != nil {
		return &unavailableError{err}
	}
	for _, name := range []string{"Content-Type", "Retry-After", "Warning"} {
		if values := resp.Header.Values(name); len(values) > 0 {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
	return nil
}

// writeReview answers in the media type that the client prefers.
func writeReview(w http.ResponseWriter, req *http.Request, review runtime.Object) error {
	supported := scheme.Codecs.SupportedMediaTypes()
	names := make([]string, 0, len(supported))
	for _, s := range supported {
		names = append(names, s.MediaType)
	}
	chosen := supported[0] // JSON
	if accept := req.Header.Get("Accept"); accept != "" {
		name := goautoneg.Negotiate(accept, names)
		for _, s := range supported {
			if s.MediaType == name {
				chosen = s
			}
		}
	}
	gvk, err := kindOf(review)
	if err != nil {
		return err
	}
	encoded, err := runtime.Encode(scheme.Codecs.EncoderForVersion(chosen.Serializer, gvk.GroupVersion()), review)
	if err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	w.Header().Set("Content-Type", chosen.MediaType)
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(encoded)
	return nil
}

func kindOf(o runtime.Object) (schema.GroupVersionKind, error) {
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("encode the response: %w", err)
	}
	return kinds[0], nil
}
