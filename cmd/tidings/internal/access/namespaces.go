package access

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// maxNamespaceReviews is how many namespaces are reviewed at once for one caller.
const maxNamespaceReviews = 16

// AllowedNamespaces returns those of namespaces in which the caller has a right, in the
// order given, and when the result expires at the latest. A namespace that was denied
// is reviewed again only after [Options.NamespaceDenyTTL]: a new right is noticed late,
// the end of a right as early as elsewhere.
//
// If one review gets no answer, AllowedNamespaces returns an error: with an incomplete
// result, a watcher would take the objects of a missing namespace for deleted. A
// namespace that was denied before stays denied then, for [Options.Grace].
func (r *Reviewer) AllowedNamespaces(ctx context.Context, caller *Caller, a Attributes, namespaces []string) ([]string, time.Time, error) {
	until := time.Now().Add(r.options.AllowTTL)
	untils := make([]time.Time, len(namespaces))
	allowed := make([]bool, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxNamespaceReviews)
	for i, namespace := range namespaces {
		action := a
		action.Namespace = namespace
		key := action.key(caller)
		reviewAt, denied := r.deniedNamespaces.get(key)
		if denied && time.Now().Before(reviewAt) {
			continue
		}
		group.Go(func() error {
			end, err := r.AuthorizeUntil(ctx, caller, action)
			switch {
			case err == nil:
				untils[i], allowed[i] = end, true
			case apierrors.IsForbidden(err):
				reviewAt := time.Now().Add(r.options.NamespaceDenyTTL)
				r.deniedNamespaces.put(key, caller.owner, func(time.Time, bool) (time.Time, time.Time, bool) {
					return reviewAt, reviewAt.Add(max(r.options.Grace, 0)), true
				})
			case denied && IsUnavailable(err):
			default:
				return err
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, time.Time{}, err
	}
	out := []string{}
	for i, namespace := range namespaces {
		if allowed[i] {
			out, until = append(out, namespace), earlier(until, untils[i])
		}
	}
	return out, until, nil
}

// key identifies the review of a right of a caller.
func (a Attributes) key(caller *Caller) digest {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // cannot happen: all fields are strings
	}
	return digestOf(string(caller.id[:]), string(body))
}
