package access

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxImpersonated is how many groups and extras a request may name: each is a
// question to the cluster.
const maxImpersonated = 256

// impersonation is on whose behalf a request is made.
type impersonation struct {
	headers http.Header // as they came, nil: nobody's
}

func impersonationOf(h http.Header) impersonation {
	var as impersonation
	for name, values := range h {
		// Headers made of others by canonical spelling keep that spelling.
		if strings.HasPrefix(http.CanonicalHeaderKey(name), impersonateAny) {
			if as.headers == nil {
				as.headers = http.Header{}
			}
			as.headers[name] = values
		}
	}
	return as
}

// impersonate makes the caller the one that it wants to act as, if the cluster
// lets it: for user, uid, each group and each extra by the verb impersonate, as
// k8s.io/apiserver/pkg/endpoints/filters/impersonation does it.
func (r *Reviewer) impersonate(ctx context.Context, caller *Caller, until time.Time) (*Caller, time.Time, error) {
	h := caller.credentials.as.headers
	if len(h) == 0 {
		return caller, until, nil
	}
	info, asked, err := impersonated(h)
	if err != nil {
		return nil, time.Time{}, err
	}
	for _, a := range asked {
		believed, err := r.AuthorizeUntil(ctx, caller, a)
		if err != nil {
			return nil, time.Time{}, err
		}
		until = earlier(until, believed)
	}
	other := r.newCaller(info).with(caller.credentials, caller.self)
	other.payer = caller.payer
	return other, until, nil
}

// impersonated reads whom headers name, and what it takes to act as that.
func impersonated(h http.Header) (authenticationv1.UserInfo, []Attributes, error) {
	var (
		info  authenticationv1.UserInfo
		asked []Attributes
	)
	ask := func(group, resource, subresource, namespace, name string) {
		a := Attributes{Verb: "impersonate", Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name}
		if group != "" {
			a.Version = "v1"
		}
		if !slices.Contains(asked, a) {
			asked = append(asked, a)
		}
	}
	const group = authenticationv1.GroupName
	info.Username = h.Get(authenticationv1.ImpersonateUserHeader)
	info.Groups = slices.Clone(h[authenticationv1.ImpersonateGroupHeader])
	for _, g := range info.Groups {
		ask("", "groups", "", "", g)
	}
	if info.UID = h.Get(authenticationv1.ImpersonateUIDHeader); info.UID != "" {
		ask(group, "uids", "", "", info.UID)
	}
	for name, values := range h {
		key, ok := strings.CutPrefix(name, authenticationv1.ImpersonateUserExtraHeaderPrefix)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		for _, v := range values {
			if info.Extra == nil {
				info.Extra = map[string]authenticationv1.ExtraValue{}
			}
			info.Extra[key] = append(info.Extra[key], v)
			ask(group, "userextras", key, "", v)
		}
	}
	switch {
	case info.Username == "":
		return info, nil, apierrors.NewBadRequest("a request is made on behalf of a group, an uid or an extra, but of no user: Impersonate-User is missing")
	case len(asked) > maxImpersonated:
		return info, nil, apierrors.NewBadRequest("a request is made on behalf of a user of too many groups and extras")
	}
	if namespace, name, ok := serviceAccount(info.Username); ok {
		ask("", "serviceaccounts", "", namespace, name)
		if len(info.Groups) == 0 {
			info.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	} else {
		ask("", "users", "", "", info.Username)
	}
	if info.Username != "system:anonymous" {
		info.Groups = withGroups(info.Groups)
	} else if !slices.Contains(info.Groups, unauthenticated) {
		info.Groups = append(info.Groups, unauthenticated)
	}
	slices.Reverse(asked) // whom first: that is what a refusal should name
	return info, asked, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
