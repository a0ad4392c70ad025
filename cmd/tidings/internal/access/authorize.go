package access

import (
	"context"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// Attributes describe an action: what a right depends on, besides the caller.
type Attributes struct {
	Verb        string
	Group       string
	Version     string
	Resource    string // empty: the action is on Path
	Subresource string
	Namespace   string // empty: all namespaces, or a cluster-scoped resource
	Name        string // empty: all objects
	Path        string

	// The selectors of a list or watch, unparsed. Most rights do not depend on them; a
	// node's right to its own pods does.
	FieldSelector, LabelSelector string
}

// AttributesOf returns what a request to a Kubernetes API does.
func AttributesOf(info *request.RequestInfo) Attributes {
	if !info.IsResourceRequest {
		return Attributes{Verb: info.Verb, Path: info.Path}
	}
	return Attributes{
		Verb: info.Verb, Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource, Subresource: info.Subresource,
		Namespace: info.Namespace, Name: info.Name, FieldSelector: info.FieldSelector, LabelSelector: info.LabelSelector,
	}
}

// decision is a cached answer to a SubjectAccessReview.
type decision struct {
	allowed bool
	reason  string
	owner   string // the user that the cached decision counts against
}

// Authorize returns nil if the caller has a right. Errors are a StatusError of
// apimachinery: 403 in the API server's words if it has not, 503 if the cluster is
// unavailable.
func (r *Reviewer) Authorize(ctx context.Context, caller *Caller, a Attributes) error {
	_, err := r.AuthorizeUntil(ctx, caller, a)
	return err
}

// AuthorizeUntil is Authorize and also returns when the result expires.
func (r *Reviewer) AuthorizeUntil(ctx context.Context, caller *Caller, a Attributes) (time.Time, error) {
	d, err := r.Decide(ctx, caller, a)
	return d.Until, err
}

// Decision is the cluster's answer to a SubjectAccessReview.
type Decision struct {
	Allowed bool
	// Reason is why, in the words of the cluster's authorizer.
	Reason string
	// Until is when a positive result expires.
	Until time.Time
}

// Decide is Authorize and also returns the decision, unless the cluster is unavailable.
//
// It reviews the action without selectors first: a caller that may read everything may
// read a part, so one result serves all selectors. Only for other callers does it send
// a review with the selectors.
func (r *Reviewer) Decide(ctx context.Context, caller *Caller, a Attributes) (Decision, error) {
	whole := a
	whole.FieldSelector, whole.LabelSelector = "", ""
	got, err := r.authorize(ctx, caller, whole)
	if err == nil && !got.value.allowed && a != whole {
		got, err = r.authorize(ctx, caller, a)
	}
	switch {
	case err != nil:
		return Decision{}, r.unavailable(ctx, "a SubjectAccessReview", err)
	case !got.value.allowed:
		return Decision{Reason: got.value.reason}, forbidden(caller, a, got.value.reason)
	}
	return Decision{Allowed: true, Reason: got.value.reason, Until: got.until}, nil
}

func (r *Reviewer) authorize(ctx context.Context, caller *Caller, a Attributes) (result[decision], error) {
	return r.rights.get(ctx, a.key(caller), caller.owner, func(ctx context.Context) (decision, time.Duration, error) {
		status, err := r.subjectAccessReview(ctx, caller, a.setSpec)
		switch {
		case err != nil:
			r.warnUnavailable("a SubjectAccessReview", err)
			return decision{}, 0, err
		case !status.Allowed || status.Denied:
			return decision{reason: status.Reason, owner: caller.owner}, r.options.DenyTTL, nil
		}
		return decision{allowed: true, reason: status.Reason, owner: caller.owner}, r.options.AllowTTL, nil
	})
}

// subjectAccessReview sends a SubjectAccessReview for the caller.
func (r *Reviewer) subjectAccessReview(ctx context.Context, caller *Caller, setAction func(*authorizationv1.SubjectAccessReviewSpec)) (authorizationv1.SubjectAccessReviewStatus, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{User: caller.info.Username, UID: caller.info.UID, Groups: caller.info.Groups}
	for k, v := range caller.info.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	setAction(&spec)
	var out authorizationv1.SubjectAccessReview
	err := create(ctx, r.authorization, "subjectaccessreviews", &authorizationv1.SubjectAccessReview{Spec: spec}, &out)
	return out.Status, err
}

func (a Attributes) setSpec(spec *authorizationv1.SubjectAccessReviewSpec) {
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
