package fakeapi

import (
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// reviewKind is a resource that can only be created. The response is a decision
// about a user; nothing is stored.
type reviewKind struct {
	gvr  schema.GroupVersionResource
	kind string
}

var reviews = []reviewKind{
	{authenticationv1.SchemeGroupVersion.WithResource("tokenreviews"), "TokenReview"},
	{authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"), "SelfSubjectReview"},
	{authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews"), "SubjectAccessReview"},
	{authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), "SelfSubjectAccessReview"},
}

// review returns the handler of a request for a review, or nil.
func (c *Cluster) review(req *Request) http.HandlerFunc {
	i := slices.IndexFunc(reviews, func(r reviewKind) bool { return r.gvr == req.Resource })
	if i < 0 || req.Verb != "create" || req.Namespace != "" {
		return nil
	}
	return func(w http.ResponseWriter, httpReq *http.Request) {
		obj, err := c.answer(req, reviews[i])
		if err != nil {
			writeStatus(w, httpReq, err)
			return
		}
		f, err := negotiate(httpReq, shape{typed: true})
		if err != nil {
			writeStatus(w, httpReq, err)
			return
		}
		obj.GetObjectKind().SetGroupVersionKind(reviews[i].gvr.GroupVersion().WithKind(reviews[i].kind))
		f.write(w, http.StatusCreated, obj)
	}
}

func (c *Cluster) answer(req *Request, kind reviewKind) (runtime.Object, error) {
	gvk := kind.gvr.GroupVersion().WithKind(kind.kind)
	switch kind.kind {
	case "TokenReview":
		review := &authenticationv1.TokenReview{}
		if err := readOptions(req.HTTP, gvk, review); err != nil {
			return nil, err
		}
		if user, ok := c.userOf(review.Spec.Token); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: user.info()}
		} else {
			review.Status = authenticationv1.TokenReviewStatus{Error: "[invalid bearer token]"}
		}
		return review, nil
	case "SelfSubjectReview":
		return &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: req.User.info()}}, nil
	case "SubjectAccessReview":
		review := &authorizationv1.SubjectAccessReview{}
		if err := readOptions(req.HTTP, gvk, review); err != nil {
			return nil, err
		}
		user := User{Name: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups}
		review.Status = c.accessStatus(user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
		return review, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{}
	if err := readOptions(req.HTTP, gvk, review); err != nil {
		return nil, err
	}
	review.Status = c.accessStatus(req.User, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return review, nil
}

func (u User) info() authenticationv1.UserInfo {
	return authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
}

func (c *Cluster) accessStatus(user User, res *authorizationv1.ResourceAttributes, other *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	var access Access
	switch {
	case res != nil:
		access = Access{
			Verb: res.Verb, Group: res.Group, Version: res.Version, Resource: res.Resource,
			Subresource: res.Subresource, Namespace: res.Namespace, Name: res.Name,
		}
	case other != nil:
		access = Access{Verb: strings.ToLower(other.Verb), Path: other.Path}
	}
	return authorizationv1.SubjectAccessReviewStatus{Allowed: c.allowed(user, access)}
}
