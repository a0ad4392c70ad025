package access

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Attributes are what a right depends on, besides the caller.
type Attributes struct {
	Verb        string
	Group       string
	Version     string
	Resource    string // empty: it is about Path
	Subresource string
	Namespace   string // empty: all of them, or the resource has none
	Name        string // empty: all of them
	Path        string

	// The selectors of a list or watch, as they came. Most rights do not depend
	// on them; a node's right to its own pods does.
	FieldSelector, LabelSelector string
}

// AttributesOf says what a request to a Kubernetes API does.
func AttributesOf(info *request.RequestInfo) Attributes {
	if !info.IsResourceRequest {
		return Attributes{Verb: info.Verb, Path: info.Path}
	}
	return Attributes{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name, FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
	}
}

// verdict is the cluster's answer to a question of rights.
type verdict struct {
	allowed bool
	reason  string
	of      string // in whose share it is remembered
}

// Authorize asks whether the caller may do something. nil means yes. Errors are
// of apimachinery's StatusError: 403 in the API server's words for no, 503 if
// the cluster cannot be asked.
func (r *Reviewer) Authorize(ctx context.Context, caller *Caller, a Attributes) error {
	_, err := r.AuthorizeUntil(ctx, caller, a)
	return err
}

// AuthorizeUntil is Authorize that also says how long the answer may be
// believed.
//
// It asks without the selectors first: who may see everything may see a part,
// and the answer serves for every selector. Only a caller who may not is asked
// about with them.
func (r *Reviewer) AuthorizeUntil(ctx context.Context, caller *Caller, a Attributes) (time.Time, error) {
	whole := a
	whole.FieldSelector, whole.LabelSelector = "", ""
	got, err := r.right(ctx, caller, whole)
	if err == nil && !got.value.allowed && a != whole {
		got, err = r.right(ctx, caller, a)
	}
	switch {
	case err != nil:
		return time.Time{}, r.unanswered(ctx, "a SubjectAccessReview", err)
	case !got.value.allowed:
		return time.Time{}, forbidden(caller, a, got.value.reason)
	}
	return got.until, nil
}

func (r *Reviewer) right(ctx context.Context, caller *Caller, a Attributes) (answer[verdict], error) {
	return r.rights.get(ctx, a.of(caller), caller.payer, func(ctx context.Context) (verdict, time.Duration, error) {
		status, err := r.review(ctx, caller, a.spec)
		switch {
		case err != nil:
			r.trouble("a SubjectAccessReview", err)
			return verdict{}, 0, err
		case !status.Allowed || status.Denied:
			return verdict{reason: status.Reason, of: caller.payer}, r.options.Deny, nil
		}
		return verdict{allowed: true, of: caller.payer}, r.options.Allow, nil
	})
}

// review sends a SubjectAccessReview about the caller.
func (r *Reviewer) review(ctx context.Context, caller *Caller, about func(*authorizationv1.SubjectAccessReviewSpec)) (authorizationv1.SubjectAccessReviewStatus, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: caller.info.Username, UID: caller.info.UID, Groups: caller.info.Groups}
	for k, v := range caller.info.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	about(&spec)
	var out authorizationv1.SubjectAccessReview
	err := create(ctx, r.authorization, "subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec}, &out)
	return out.Status, err
}

func (a Attributes) spec(spec *authorizationv1.SubjectAccessReviewSpec) {
	if a.Resource == "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: a.Verb, Path: a.Path}
		return
	}
	spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Namespace: a.Namespace, Name: a.Name,
	}
	if a.FieldSelector != "" {
		spec.ResourceAttributes.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: a.FieldSelector}
	}
	if a.LabelSelector != "" {
		spec.ResourceAttributes.LabelSelector = &authorizationv1.LabelSelectorAttributes{RawSelector: a.LabelSelector}
	}
}
