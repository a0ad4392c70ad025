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

// maxReview is the size of a review at most, of either direction.
const maxReview = 3 << 20

// selfReviews are the questions that callers may ask about themselves.
var selfReviews = map[schema.GroupVersionResource]func() runtime.Object{
	authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"): func() runtime.Object { return &authorizationv1.SelfSubjectAccessReview{} },
	authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews"):  func() runtime.Object { return &authorizationv1.SelfSubjectRulesReview{} },
	authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"):      func() runtime.Object { return &authenticationv1.SelfSubjectReview{} },
}

// IsSelfReview says that a request asks about its own caller:
// SelfSubjectAccessReview, SelfSubjectRulesReview or SelfSubjectReview.
func IsSelfReview(info *request.RequestInfo) bool {
	_, ok := selfReviews[reviewOf(info)]
	plain := "/apis/" + info.APIGroup + "/" + info.APIVersion + "/" + info.Resource
	return ok && strings.TrimRight(info.Path, "/") == plain && info.IsResourceRequest && info.Verb == "create" && info.Namespace == "" && info.Name == "" && info.Subresource == ""
}

func reviewOf(info *request.RequestInfo) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
}

// ServeSelfReview answers a request that [IsSelfReview]. A caller with a token
// has it asked of the cluster with that token, so the answer is the cluster's to
// the byte. Of a caller with a certificate the mirror says who it is by itself,
// and asks a SubjectAccessReview about its rights; a list of all its rights
// cannot be had that way, so a SelfSubjectRulesReview is answered as incomplete,
// with no rules. An error is for the caller to report; nothing has been written
// then.
func (r *Reviewer) ServeSelfReview(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, caller *Caller) error {
	if caller.self {
		err := forward(w, req, info, r.callers, r.base, r.options.Timeout, func(h http.Header) { caller.Credit(h) })
		return r.forwarded(req, err)
	}
	ctx, cancel := context.WithTimeoutCause(req.Context(), r.options.Timeout, errSilent)
	defer cancel()
	body, err := bodyOf(req)
	if err != nil {
		return err
	}
	review := selfReviews[reviewOf(info)]()
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, review); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	switch review := review.(type) {
	case *authenticationv1.SelfSubjectReview:
		review.Status.UserInfo = caller.info
	case *authorizationv1.SelfSubjectAccessReview:
		review.Status, err = r.review(ctx, caller, func(spec *authorizationv1.SubjectAccessReviewSpec) {
			spec.ResourceAttributes, spec.NonResourceAttributes = review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes
		})
		var status apierrors.APIStatus
		if errors.As(err, &status) && (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)) {
			return err
		}
		if err != nil {
			return r.unanswered(req.Context(), "a SubjectAccessReview", err)
		}
	case *authorizationv1.SelfSubjectRulesReview:
		review.Status = authorizationv1.SubjectRulesReviewStatus{
			ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: true,
			EvaluationError: "the rights of who shows a client certificate can be asked about one by one only: use a SelfSubjectAccessReview, or a bearer token",
		}
	}
	return writeReview(w, req, review)
}

func (r *Reviewer) forwarded(req *http.Request, err error) error {
	const asking = "a review of the caller itself"
	var silent *silence
	if errors.As(err, &silent) {
		r.trouble(asking, silent.err)
		return r.unanswered(req.Context(), asking, silent.err)
	}
	return err
}

// ServeOwnReview answers a request that [IsSelfReview] where callers are not
// authenticated, and have the rights of the mirror: it asks with those.
func ServeOwnReview(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, c *cluster.Cluster) error {
	err := forward(w, req, info, c.HTTPClient(), c.BaseURL().String(), Options{}.withDefaults().Timeout, func(http.Header) {})
	var silent *silence
	if errors.As(err, &silent) {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the API server of cluster %s cannot be asked: %s", c.Name(), cluster.PublicMessage(silent.err)))
	}
	return err
}

func bodyOf(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, maxReview+1))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", long.Limit))
	case err != nil:
		return nil, apierrors.NewBadRequest("the request's body cannot be read")
	case len(body) > maxReview:
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxReview))
	}
	return body, nil
}

// silence is the error of a cluster that does not answer.
type silence struct{ err error }

func (s *silence) Error() string { return s.err.Error() }

// forward asks the cluster, and answers what it answers.
func forward(w http.ResponseWriter, req *http.Request, info *request.RequestInfo, client *http.Client, base string, patience time.Duration, credit func(http.Header)) error {
	ctx, cancel := context.WithTimeoutCause(req.Context(), patience, errSilent)
	defer cancel()
	body, err := bodyOf(req)
	if err != nil {
		return err
	}
	gvr := reviewOf(info)
	url := strings.TrimSuffix(base, "/") + "/apis/" + gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
	if req.URL.RawQuery != "" {
		url += "?" + req.URL.RawQuery
	}
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return apierrors.NewBadRequest("the request cannot be handed on")
	}
	for _, name := range []string{"Accept", "Content-Type", "User-Agent"} {
		if values := req.Header.Values(name); len(values) > 0 {
			out.Header[name] = values
		}
	}
	credit(out.Header)
	resp, err := client.Do(out)
	if err != nil {
		return &silence{err}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxReview))
	if err != nil {
		return &silence{err}
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

// writeReview answers as the client likes best.
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
		return fmt.Errorf("encode an answer: %w", err)
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
		return schema.GroupVersionKind{}, fmt.Errorf("encode an answer: %w", err)
	}
	return kinds[0], nil
}
