//go:build unix

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A User is a user of the cluster, authenticated by a bearer token. Its value
// is the user's name.
type User string

const (
	// Admin may do everything. It is a member of system:masters.
	Admin User = "admin"

	// NamespacedUser may read and write common resources in [Namespace], by a
	// Role of its own name, and nothing anywhere else.
	NamespacedUser User = "namespaced-user"

	// Nobody has only the rights of every authenticated user: discovery and
	// reviews of its own rights.
	Nobody User = "nobody"
)

// Namespace is the namespace that [NamespacedUser] has rights in. It exists
// from the start, like the namespace default.
const Namespace = "team-a"

var users = []User{Admin, NamespacedUser, Nobody}

// token is the user's bearer token. It is no secret: the cluster listens on the
// loopback interface and lasts as long as a test.
func (u User) token() string { return string(u) + "-token" }

// tokenFile returns the content for --token-auth-file.
func tokenFile() []byte {
	var lines strings.Builder
	for _, user := range users {
		group := ""
		if user == Admin {
			group = "system:masters"
		}
		fmt.Fprintf(&lines, "%s,%s,%s,%s\n", user.token(), user, user, group)
	}
	return []byte(lines.String())
}

// Config returns a new client configuration for user. The client has no rate
// limit.
func (c *Cluster) Config(user User) *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		BearerToken:     user.token(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		QPS:             -1,
	}
}

// Kubeconfig returns the path of a kubeconfig file for user. The file is
// removed with the cluster.
func (c *Cluster) Kubeconfig(user User) string { return c.path(string(user) + ".kubeconfig") }

// WriteKubeconfig writes a kubeconfig file to path. Its current context is the
// server of config with its bearer token.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "tidings"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
		InsecureSkipTLSVerify:    config.Insecure,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		return fmt.Errorf("write a kubeconfig: %w", err)
	}
	return nil
}

// setUp waits for the namespace default, which the API server creates soon
// after it is ready, and creates Namespace and the rights of NamespacedUser.
func (c *Cluster) setUp(ctx context.Context) error {
	if err := c.makeRights(ctx); err != nil {
		return fmt.Errorf("set up the cluster's users: %w", err)
	}
	return nil
}

func (c *Cluster) makeRights(ctx context.Context) error {
	core, err := clientFor(c.AdminConfig(), corev1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	rbac, err := clientFor(c.AdminConfig(), rbacv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.apiServer.waitReady(ctx, func(ctx context.Context) error {
		return core.Get().Resource("namespaces").Name(metav1.NamespaceDefault).Do(ctx).Error()
	}); err != nil {
		return err
	}

	meta := metav1.ObjectMeta{Name: string(NamespacedUser), Namespace: Namespace}
	return errors.Join(
		core.Post().Resource("namespaces").
			Body(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}).Do(ctx).Error(),
		rbac.Post().Namespace(Namespace).Resource("roles").
			Body(&rbacv1.Role{ObjectMeta: meta, Rules: namespacedRules}).Do(ctx).Error(),
		rbac.Post().Namespace(Namespace).Resource("rolebindings").
			Body(&rbacv1.RoleBinding{
				ObjectMeta: meta,
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: string(NamespacedUser)}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			}).Do(ctx).Error(),
	)
}

// namespacedRules are the rights of NamespacedUser in Namespace. The built-in
// ClusterRole edit would be shorter, but a controller fills it.
var namespacedRules = func() []rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
	return []rbacv1.PolicyRule{
		{Verbs: verbs, APIGroups: []string{""}, Resources: []string{
			"configmaps", "endpoints", "events", "persistentvolumeclaims", "pods", "pods/log", "pods/status",
			"replicationcontrollers", "secrets", "serviceaccounts", "services",
		}},
		{Verbs: verbs, APIGroups: []string{"apps"}, Resources: []string{
			"controllerrevisions", "daemonsets", "deployments", "deployments/scale", "replicasets", "statefulsets",
		}},
		{Verbs: verbs, APIGroups: []string{"batch"}, Resources: []string{"cronjobs", "jobs"}},
		{Verbs: verbs, APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}},
		{Verbs: verbs, APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "networkpolicies"}},
	}
}()

// clientFor returns a client of one API group. The typed clientset would take
// longer to compile than the rest of this package together.
func clientFor(config *rest.Config, gv schema.GroupVersion) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &gv
	config.APIPath = "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.RESTClientFor(config)
}
