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

// Authenticate finds out who makes a request, by its certificate or else by its
// token, and whether it may act as whom it wants to act as. Errors are of
// apimachinery's StatusError: 401 for credentials that are missing or not
// accepted, 403 for an impersonation that is not allowed, 503 if the cluster
// cannot be asked.
func (r *Reviewer) Authenticate(ctx context.Context, credentials Credentials) (*Caller, error) {
	caller, _, err := r.authenticate(ctx, credentials)
	return caller, err
}

// authenticate also says how long the answer may be believed.
func (r *Reviewer) authenticate(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	caller, until, err := r.meet(ctx, credentials)
	if err != nil {
		return nil, time.Time{}, err
	}
	return r.impersonate(ctx, caller, until)
}

// meet finds out whose credentials they are, whoever they want to act as.
func (r *Reviewer) meet(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
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

// IsStranger says, and asks nothing for it, that nobody is known by credentials:
// they have not been accepted lately, and not been refused a moment ago either.
// Who is refused need not wait for it: then there is an error, 401.
func (r *Reviewer) IsStranger(credentials Credentials) (bool, error) {
	standings := []standing{refused}
	if len(credentials.certificates) > 0 {
		standings = append(standings, r.standingOfCertificate(credentials))
	}
	if credentials.token != nil {
		standings = append(standings, r.tokens.standing(digestOf("token", *credentials.token)))
	}
	switch {
	case credentials.malformed:
		return false, unauthorized()
	case slices.Contains(standings, known):
		return false, nil
	case slices.Contains(standings, stranger):
		return true, nil
	}
	return false, unauthorized()
}

// Payer is the key of the user whose credentials they are, whoever it wants to act
// as, see [Caller.Key]. It asks nothing: "" means that they have not been accepted
// lately.
func (r *Reviewer) Payer(credentials Credentials) string {
	if by := r.authorities.cache.lastYes(digest{}); by != nil && len(credentials.certificates) > 0 {
		if c := r.certificates.lastYes(credentials.signedBy(by)); c != nil {
			return c.payer
		}
	}
	if credentials.token == nil {
		return ""
	}
	return payerOf(r.tokens.lastYes(digestOf("token", *credentials.token)))
}

// Meet finds out whose credentials of a stranger they are. From then on they are
// known, for a time, if they are anybody's. The error is as of
// [Reviewer.Authenticate].
func (r *Reviewer) Meet(ctx context.Context, credentials Credentials) error {
	_, _, err := r.meet(ctx, credentials)
	return err
}

// byToken asks the cluster whose token it is.
func (r *Reviewer) byToken(ctx context.Context, credentials Credentials) (*Caller, time.Time, error) {
	const asking = "a TokenReview"
	token := *credentials.token
	got, err := r.tokens.get(ctx, digestOf("token", token), "", func(ctx context.Context) (*Caller, time.Duration, error) {
		var review authenticationv1.TokenReview
		err := create(ctx, r.authentication, "tokenreviews", &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, &review)
		if err != nil {
			// There are proxies that repeat the request in what they say went wrong.
			r.trouble(asking, errors.New(strings.ReplaceAll(err.Error(), token, "[redacted]")))
			return nil, 0, err
		}
		if !review.Status.Authenticated || review.Status.User.Username == "" {
			return nil, r.options.Deny, nil
		}
		return r.newCaller(review.Status.User), r.options.Allow, nil
	})
	if err != nil {
		return nil, time.Time{}, r.unanswered(ctx, asking, err)
	}
	if got.value == nil {
		return nil, time.Time{}, unauthorized()
	}
	return got.value.with(credentials, true), got.until, nil
}

// withGroups adds the groups that the API server gives everyone who is known.
func withGroups(groups []string) []string {
	if slices.Contains(groups, authenticated) || slices.Contains(groups, unauthenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

// serviceAccount reads the user name of a service account.
func serviceAccount(username string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(username, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}
