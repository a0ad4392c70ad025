package access

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// maxImpersonated is how many groups and extras a request may name: each needs a
// review.
const maxImpersonated = 256

// impersonationHeaders returns the headers that name the user to impersonate, as sent;
// nil if there are none.
func impersonationHeaders(h http.Header) (out http.Header) {
	for name, values := range h {
		// A header that is not in canonical form keeps its spelling.
		if strings.HasPrefix(http.CanonicalHeaderKey(name), impersonatePrefix) {
			if out == nil {
				out = http.Header{}
			}
			out[name] = values
		}
	}
	return out
}

// impersonate returns the caller that the request is made on behalf of, if the cluster
// allows it: the verb impersonate on the user, the uid, each group and each extra, as
// in k8s.io/apiserver/pkg/endpoints/filters/impersonation.
func (r *Reviewer) impersonate(ctx context.Context, caller *Caller, until time.Time) (*Caller, time.Time, error) {
	h := caller.credentials.impersonation
	if len(h) == 0 {
		return caller, until, nil
	}
	info, actions, err := parseImpersonation(h)
	if err != nil {
		return nil, time.Time{}, err
	}
	if info.Username == "" {
		return caller, until, nil
	}
	for _, a := range actions {
		authorizedUntil, err := r.AuthorizeUntil(ctx, caller, a)
		if err != nil {
			return nil, time.Time{}, err
		}
		until = earlier(until, authorizedUntil)
	}
	other := r.newCaller(info).withCredentials(caller.credentials, caller.byToken)
	other.owner, other.impersonator = caller.owner, caller
	return other, until, nil
}

// parseImpersonation returns the user that the headers name, and the rights that it
// takes to impersonate it.
func parseImpersonation(h http.Header) (authenticationv1.UserInfo, []Attributes, error) {
	var (
		info    authenticationv1.UserInfo
		actions []Attributes
	)
	add := func(group, resource, subresource, namespace, name string) {
		a := Attributes{Verb: "impersonate", Group: group, Resource: resource, Subresource: subresource, Namespace: namespace, Name: name}
		if group != "" {
			a.Version = "v1"
		}
		if !slices.Contains(actions, a) {
			actions = append(actions, a)
		}
	}
	const group = authenticationv1.GroupName
	info.Username = h.Get(authenticationv1.ImpersonateUserHeader)
	info.Groups = slices.Clone(h[authenticationv1.ImpersonateGroupHeader])
	for _, g := range info.Groups {
		add("", "groups", "", "", g)
	}
	if info.UID = h.Get(authenticationv1.ImpersonateUIDHeader); info.UID != "" {
		add(group, "uids", "", "", info.UID)
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
			add(group, "userextras", key, "", v)
		}
	}
	switch {
	case info.Username == "" && info.UID == "" && len(info.Groups) == 0 && len(info.Extra) == 0:
		return info, nil, nil // no header has a value
	case info.Username == "":
		wanted := &user.DefaultInfo{UID: info.UID, Groups: info.Groups}
		for key, values := range info.Extra {
			if wanted.Extra == nil {
				wanted.Extra = map[string][]string{}
			}
			wanted.Extra[key] = values
		}
		return info, nil, apierrors.NewBadRequest(fmt.Sprintf("requested %#v without impersonating a user name", wanted))
	case len(actions) > maxImpersonated:
		return info, nil, apierrors.NewBadRequest("the request impersonates a user with too many groups and extras")
	}
	if namespace, name, ok := serviceAccount(info.Username); ok {
		add("", "serviceaccounts", "", namespace, name)
		if len(info.Groups) == 0 {
			info.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	} else {
		add("", "users", "", "", info.Username)
	}
	if info.Username != "system:anonymous" {
		info.Groups = withGroups(info.Groups)
	} else if !slices.Contains(info.Groups, unauthenticated) {
		info.Groups = append(info.Groups, unauthenticated)
	}
	slices.Reverse(actions) // the user first, for a denial to name it
	return info, actions, nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
