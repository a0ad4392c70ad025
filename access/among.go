package access

import (
	"context"
	"encoding/json"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// questionsAtOnce is how many namespaces are asked about at once for one caller.
const questionsAtOnce = 16

// Among returns those of some namespaces in which the caller may do something,
// in the order given, and until when that is known at the latest. A namespace
// that was refused is asked about again only after [Options.Hidden]: what is
// new is seen late, and what has gone is not seen longer than elsewhere.
//
// If one question is not answered there is no answer at all: who cannot see a
// namespace for a moment would take its objects for deleted. A namespace that was
// refused before stays refused then, for [Options.Grace].
func (r *Reviewer) Among(ctx context.Context, caller *Caller, a Attributes, namespaces []string) ([]string, time.Time, error) {
	until := time.Now().Add(r.options.Allow)
	ends := make([]time.Time, len(namespaces))
	allowed := make([]bool, len(namespaces))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(questionsAtOnce)
	for i, namespace := range namespaces {
		in := a
		in.Namespace = namespace
		key := in.of(caller)
		again, refused := r.hidden.get(key)
		if refused && time.Now().Before(again) {
			continue
		}
		group.Go(func() error {
			end, err := r.AuthorizeUntil(ctx, caller, in)
			switch {
			case err == nil:
				ends[i], allowed[i] = end, true
			case apierrors.IsForbidden(err):
				again := time.Now().Add(r.options.Hidden)
				r.hidden.put(key, caller.payer, func(time.Time, bool) (time.Time, time.Time, bool) {
					return again, again.Add(max(r.options.Grace, 0)), true
				})
			case refused && IsUnanswered(err):
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
			out, until = append(out, namespace), earlier(until, ends[i])
		}
	}
	return out, until, nil
}

// of is what the answer to a question about a caller is found by.
func (a Attributes) of(caller *Caller) digest {
	body, err := json.Marshal(a)
	if err != nil {
		panic(err) // strings
	}
	return digestOf(string(caller.id[:]), string(body))
}
