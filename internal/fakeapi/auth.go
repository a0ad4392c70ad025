package fakeapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// User identifies the caller of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
}

var (
	admin     = User{Name: "system:admin", Groups: []string{"system:masters", "system:authenticated"}}
	anonymous = User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
)

// Access is an action to authorize. Group, Version, Resource, Subresource,
// Namespace and Name describe access to a resource, Path any other.
type Access struct {
	Verb        string
	Group       string
	Version     string
	Resource    string
	Subresource string
	Namespace   string // empty is all namespaces or a cluster-wide resource
	Name        string
	Path        string
}

func (c *Cluster) authenticate(req *http.Request) (User, error) {
	if c.opts.Users == nil {
		return admin, nil
	}
	token, ok := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return anonymous, nil
	}
	user, ok := c.userOf(token)
	if !ok {
		return User{}, apierrors.NewUnauthorized("Unauthorized")
	}
	return c.impersonate(user, req)
}

func (c *Cluster) userOf(token string) (User, bool) {
	c.mu.RLock()
	user, ok := c.opts.Users[token]
	c.mu.RUnlock()
	if ok && !slices.Contains(user.Groups, "system:authenticated") {
		user.Groups = append(slices.Clone(user.Groups), "system:authenticated")
	}
	return user, ok
}

// RemoveUser revokes a bearer token of [Options.Users].
func (c *Cluster) RemoveUser(token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.opts.Users, token)
}

// impersonate returns the user that the request impersonates, if user may do so.
func (c *Cluster) impersonate(user User, req *http.Request) (User, error) {
	name := req.Header.Get("Impersonate-User")
	if name == "" {
		return user, nil
	}
	access := Access{Verb: "impersonate", Resource: "users", Name: name}
	if !c.allowed(user, access) {
		return User{}, apierrors.NewForbidden(schema.GroupResource{Resource: "users"}, name, errors.New(forbiddenMessage(user, access)))
	}
	groups := append(slices.Clone(req.Header.Values("Impersonate-Group")), "system:authenticated")
	return User{Name: name, UID: req.Header.Get("Impersonate-Uid"), Groups: groups}, nil
}

func (c *Cluster) allowed(user User, access Access) bool {
	if c.opts.Allow == nil {
		return user.Name != anonymous.Name
	}
	return c.opts.Allow(user, access)
}

func (c *Cluster) authorize(req *Request) error {
	access := Access{
		Verb:        req.Verb,
		Group:       req.Resource.Group,
		Version:     req.Resource.Version,
		Resource:    req.Resource.Resource,
		Subresource: req.Subresource,
		Namespace:   req.Namespace,
		Name:        req.Name,
	}
	if !req.IsResource() {
		access.Path = req.HTTP.URL.Path
		switch access.Path {
		case "/healthz", "/livez", "/readyz", "/version": // open to everybody by default
			return nil
		}
	}
	if access.Resource == "namespaces" && access.Group == "" && access.Name != "" {
		access.Namespace = access.Name // as kube-apiserver does for its authorizers
	}
	if c.allowed(req.User, access) {
		return nil
	}
	reason := errors.New(forbiddenMessage(req.User, access))
	if !req.IsResource() {
		err := apierrors.NewForbidden(schema.GroupResource{}, "", reason)
		err.ErrStatus.Message = "forbidden: " + reason.Error()
		return err
	}
	return apierrors.NewForbidden(req.Resource.GroupResource(), req.Name, reason)
}

// forbiddenMessage uses the words of a kube-apiserver.
func forbiddenMessage(user User, a Access) string {
	if a.Resource == "" {
		return fmt.Sprintf("User %q cannot %s path %q", user.Name, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", user.Name, a.Verb, resource, a.Group, where)
}
