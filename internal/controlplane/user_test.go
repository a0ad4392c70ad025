//go:build unix

package controlplane

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRights(t *testing.T) {
	c := Shared(t)
	const everywhere = ""
	for _, test := range []struct {
		user      User
		namespace string
		resource  string
		allowed   bool
	}{
		{Admin, everywhere, "pods", true},
		{Admin, everywhere, "nodes", true},
		{Admin, Namespace, "secrets", true},
		{NamespacedUser, everywhere, "pods", false},
		{NamespacedUser, everywhere, "nodes", false},
		{NamespacedUser, everywhere, "namespaces", false},
		{NamespacedUser, "default", "pods", false},
		{NamespacedUser, Namespace, "pods", true},
		{NamespacedUser, Namespace, "secrets", true},
		{NamespacedUser, Namespace, "resourcequotas", false},
		{Nobody, everywhere, "pods", false},
		{Nobody, "default", "pods", false},
		{Nobody, Namespace, "pods", false},
	} {
		err := coreClient(t, c.Config(test.user)).Get().Namespace(test.namespace).Resource(test.resource).
			Do(t.Context()).Error()
		if test.allowed && err != nil || !test.allowed && !apierrors.IsForbidden(err) {
			t.Errorf("%s lists %s in namespace %q: error %v, want allowed %v",
				test.user, test.resource, test.namespace, err, test.allowed)
		}
	}
}

func TestNamespacedUserWrites(t *testing.T) {
	c := Shared(t)
	client := coreClient(t, c.NamespacedUserConfig())
	create := func(namespace string) error {
		return client.Post().Namespace(namespace).Resource("configmaps").
			Body(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}).
			Do(t.Context()).Error()
	}
	if err := create(Namespace); err != nil {
		t.Errorf("create in its namespace: %v", err)
	}
	if err := create("default"); !apierrors.IsForbidden(err) {
		t.Errorf("create in another namespace: %v, want it forbidden", err)
	}
}

func TestNobodyMayDiscover(t *testing.T) {
	c := Shared(t)
	stdout, _, err := c.Kubectl(t.Context(), Nobody, "api-resources", "--output=name")
	if err != nil || !strings.Contains(stdout, "deployments.apps") {
		t.Errorf("kubectl api-resources as nobody: %q, %v, want deployments.apps among them", stdout, err)
	}
}

// The kubeconfig files and the configurations name the same users.
func TestKubeconfig(t *testing.T) {
	c := Shared(t)
	for _, user := range users {
		stdout, _, err := c.Kubectl(t.Context(), user, "auth", "whoami", "--output=jsonpath={.status.userInfo.username}")
		if err != nil || stdout != string(user) {
			t.Errorf("kubectl auth whoami with the kubeconfig of %s: %q, %v", user, stdout, err)
		}
	}
}
