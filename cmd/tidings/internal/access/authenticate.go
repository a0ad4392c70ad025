package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
)

const (
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
)

// Authenticate returns the caller of a request, by its certificate or else by its
// token, and checks that it may impersonate the user that it asks for. Errors are a
// StatusError of apimachinery: 401 for missing or rejected credentials, 403 for an
// impersonation that is not allowed, 503 if the cluster is unavailable.
func (r *Reviewer) Authenticate(ctx context.Context, credentials Credentials) (*Caller, error) {
	caller, _, err := r.authenticate(ctx, credentials)
	return caller, err
}

// authenticate also returns when the result expires.
func (r *Reviewer) authenticate(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	caller, until, err := r.verify(ctx, credentials)
	if err != nil {
		return nil, time.Time{}, err
	}
	return r.impersonate(ctx, caller, until)
}

// verify returns the user that the credentials belong to, without impersonation.
func (r *Reviewer) verify(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	if credentials.malformed {
		return nil, time.Time{}, unauthorized()
	}
	caller, until, err := r.byCertificate(ctx, credentials)
	if (caller == nil || err != nil) && credentials.token != nil {
		caller, until, err = r.byToken(ctx, credentials)
	}
	if err == nil && caller == nil {
		err = unauthorized()
	}
	return caller, until, err
}

// IsUnverified reports, without a review, whether the credentials are unverified: not
// accepted lately, and not rejected a moment ago either. If they are rejected or
// missing, the error is a 401.
func (r *Reviewer) IsUnverified(credentials Credentials) (bool, error) {
	statuses := []credentialStatus{rejected}
	if len(credentials.certificates) > 0 {
		statuses = append(statuses, r.certificateStatus(credentials))
	}
	if credentials.token != nil {
		statuses = append(statuses, r.tokens.status(credentials.tokenID))
	}
	switch {
	case credentials.malformed:
		return false, unauthorized()
	case slices.Contains(statuses, verified):
		return false, nil
	case slices.Contains(statuses, unverified):
		return true, nil
	}
	return false, unauthorized()
}

// Known returns the user that the credentials belong to, without impersonation. It
// sends no review: nil means that the credentials have not been accepted lately.
func (r *Reviewer) Known(credentials Credentials) *Caller {
	if roots := r.authorities.cache.lastPositive(digest{}); roots != nil && len(credentials.certificates) > 0 {
		if c := r.certificates.lastPositive(credentials.verificationKey(roots)); c != nil {
			return c
		}
	}
	if credentials.token == nil {
		return nil
	}
	return r.tokens.lastPositive(credentials.tokenID)
}

// Owner returns the key of the [Reviewer.Known] user; see [Caller.Key]. "" means that
// there is none.
func (r *Reviewer) Owner(credentials Credentials) string { return ownerOf(r.Known(credentials)) }

// Verify verifies credentials. If the cluster accepts them, they are not unverified
// from then on, for a time. The error is as for [Reviewer.Authenticate].
func (r *Reviewer) Verify(ctx context.Context, credentials Credentials) error {
	_, _, err := r.verify(ctx, credentials)
	return err
}

// byToken authenticates by token, with a TokenReview.
func (r *Reviewer) byToken(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	const what = "a TokenReview"
	token := *credentials.token
	got, err := r.tokens.get(ctx, credentials.tokenID, "", func(ctx context.Context) (*Caller, time.Duration, error) {
		var review authenticationv1.TokenReview
		err := create(ctx, r.authentication, "tokenreviews", &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, &review)
		if err != nil {
			// Some proxies repeat the request in their error.
			r.warnUnavailable(what, errors.New(strings.ReplaceAll(err.Error(), token, "[redacted]")))
			return nil, 0, err
		}
		if !review.Status.Authenticated || review.Status.User.Username == "" {
			return nil, r.options.DenyTTL, nil
		}
		return r.newCaller(review.Status.User), r.options.AllowTTL, nil
	})
	if err != nil {
		return nil, time.Time{}, r.unavailable(ctx, what, err)
	}
	if got.value == nil {
		return nil, time.Time{}, unauthorized()
	}
	return got.value.withCredentials(credentials, true), got.until, nil
}

// withGroups adds the group that the API server gives to every authenticated user.
func withGroups(groups []string) []string {
	if slices.Contains(groups, authenticated) || slices.Contains(groups, unauthenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

// serviceAccount parses the user name of a service account.
func serviceAccount(username string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(username, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
