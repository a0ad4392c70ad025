package fakeapi_test

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/internal/fakeapi"
)

func withUsers() fakeapi.Options {
	return fakeapi.Options{
		Users: map[string]fakeapi.User{
			"root-token":   {Name: "root", Groups: []string{"admins"}},
			"nobody-token": {Name: "nobody"},
		},
		Allow: func(user fakeapi.User, access fakeapi.Access) bool {
			return user.Name == "root" || access.Resource == "configmaps" && access.Namespace == "public" || access.Resource == "selfsubjectaccessreviews"
		},
	}
}

func TestUsersAndRights(t *testing.T) {
	inBubble(t, withUsers(), func(r *rig) {
		as := func(token string) kubernetes.Interface {
			config := rest.CopyConfig(r.config)
			config.BearerToken = token
			return typedClient(r.T, config)
		}
		root, nobody := as("root-token"), as("nobody-token")
		_, err := root.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{})
		r.must(err)
		_, err = nobody.CoreV1().ConfigMaps("public").List(r.ctx, metav1.ListOptions{})
		r.must(err)
		for _, c := range []struct {
			ask  func() error
			want string
		}{
			{func() error { _, err := nobody.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{}); return err },
				`pods is forbidden: User "nobody" cannot list resource "pods" in API group "" at the cluster scope`},
			{func() error {
				_, err := nobody.AppsV1().Deployments("x").Watch(r.ctx, metav1.ListOptions{})
				return err
			},
				`deployments.apps is forbidden: User "nobody" cannot watch resource "deployments" in API group "apps" in the namespace "x"`},
			{func() error { _, err := nobody.CoreV1().Pods("x").Get(r.ctx, "p", metav1.GetOptions{}); return err },
				`pods "p" is forbidden: User "nobody" cannot get resource "pods" in API group "" in the namespace "x"`},
			{func() error { _, err := r.typed.CoreV1().Pods("").List(r.ctx, metav1.ListOptions{}); return err },
				`pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope`},
		} {
			if err := c.ask(); !apierrors.IsForbidden(err) || err.Error() != c.want {
				r.Errorf("got  %v\nwant %v", err, c.want)
			}
		}
		if _, err := as("made-up").CoreV1().Pods("").List(r.ctx, metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			r.Errorf("unknown token: got %v, want Unauthorized", err)
		}
		config := rest.CopyConfig(r.config)
		config.BearerToken = "root-token"
		config.Impersonate.UserName = "nobody"
		if _, err := typedClient(r.T, config).CoreV1().Pods("").List(r.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			r.Errorf("root as nobody: got %v, want Forbidden", err)
		}

		token, err := root.AuthenticationV1().TokenReviews().Create(r.ctx,
			&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "nobody-token"}}, metav1.CreateOptions{})
		r.must(err)
		if !token.Status.Authenticated || token.Status.User.Username != "nobody" {
			r.Errorf("token review: %+v", token.Status)
		}
		review := func(namespace string) bool {
			spec := authorizationv1.SubjectAccessReviewSpec{User: "nobody",
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: namespace}}
			other, err := root.AuthorizationV1().SubjectAccessReviews().Create(r.ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
			r.must(err)
			self, err := nobody.AuthorizationV1().SelfSubjectAccessReviews().Create(r.ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: spec.ResourceAttributes}}, metav1.CreateOptions{})
			r.must(err)
			if self.Status.Allowed != other.Status.Allowed {
				r.Errorf("the reviews disagree about namespace %q", namespace)
			}
			return other.Status.Allowed
		}
		if !review("public") || review("private") {
			r.Error("the access reviews do not follow Allow")
		}
	})
}
