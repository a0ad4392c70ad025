package server

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/livetable"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// seen are the namespaces that a window is limited to, because the caller may read no
// others (visible=true) or names them.
type seen struct {
	All        bool     `json:"all"`
	Namespaces []string `json:"namespaces"`        // the first of them
	Refused    []string `json:"refused,omitempty"` // named, but not permitted

	within []string // all of them; nil: no limit
}

func newSeen(within, refused []string) *seen {
	return &seen{All: within == nil, Namespaces: append([]string{}, within[:min(len(within), livetable.MaxRows)]...), Refused: refused, within: within}
}

// maxNamespaces is the number of namespaces that a window may name.
const maxNamespaces = 64

// seenBy returns what a window of several namespaces has, and when that expires; nil if the
// guard has authorized all of the window already.
func (s *Server) seenBy(ctx context.Context, g *grant) (*seen, time.Time, error) {
	switch {
	case g.params.visible:
		within, until, err := s.visible(ctx, g, g.query)
		return newSeen(within, nil), until, err
	case g.params.namespaces != nil:
		return s.seenOfNamed(ctx, g)
	}
	return nil, time.Time{}, nil
}

// seenOfNamed is seenBy for namespaces that the caller names. Each is authorized by itself,
// or all are by the right in all namespaces.
func (s *Server) seenOfNamed(ctx context.Context, g *grant) (*seen, time.Time, error) {
	named := g.params.namespaces
	if s.opts.Gate == nil {
		return newSeen(named, nil), time.Now().Add(time.Hour), nil
	}
	until, forbidden := g.reviewer.AuthorizeUntil(ctx, g.caller, g.attributes)
	if forbidden == nil {
		return newSeen(named, nil), until, nil
	}
	if !apierrors.IsForbidden(forbidden) {
		return nil, until, forbidden
	}
	same, err := s.sameNamespaces(ctx, g.query, named)
	if err != nil {
		return nil, until, err
	}
	allowed, until, err := g.reviewer.AllowedNamespaces(ctx, g.caller, g.attributes, same)
	switch {
	case err != nil:
		return nil, until, err
	case len(allowed) == 0:
		one := g.attributes
		one.Namespace = named[0]
		if _, err := g.reviewer.AuthorizeUntil(ctx, g.caller, one); apierrors.IsForbidden(err) {
			forbidden = err // it names the namespace
		}
		return nil, until, forbidden
	}
	refused := slices.DeleteFunc(slices.Clone(named), func(name string) bool { return slices.Contains(allowed, name) })
	return newSeen(allowed, refused), until, nil
}

// sameNamespaces returns those namespaces in which the rights of now govern a query, see
// pastAttributes.
func (s *Server) sameNamespaces(ctx context.Context, q *read.Query, names []string) (same []string, err error) {
	for _, name := range names {
		one, err := q.OfNamespace(name)
		if err != nil {
			return nil, err
		}
		if ok, err := s.reader.SameNamespace(ctx, one); err != nil {
			return nil, err
		} else if ok {
			same = append(same, name)
		}
	}
	return same, nil
}

// eachSeen calls do with the query of a window and what the caller sees of it, and with a
// context that ends when the caller loses a right; and again when the namespaces that the
// caller may read change.
func (s *Server) eachSeen(ctx context.Context, g *grant, do func(context.Context, *read.Query, *seen) error) error {
	for {
		err := s.oneSeen(ctx, g, do)
		if !errors.Is(err, errNamespacesChanged) {
			return err
		}
	}
}

// seenQuery returns the query of a grant limited to what its caller sees, and what that is; see seenBy.
func (s *Server) seenQuery(ctx context.Context, g *grant) (*read.Query, *seen, error) {
	now, _, err := s.seenBy(ctx, g)
	if err != nil || now == nil {
		return g.query, nil, err
	}
	g.sees(now.within)
	if now.within == nil {
		return g.query, now, nil
	}
	q, err := g.query.Within(now.within)
	return q, now, err
}

func (s *Server) oneSeen(ctx context.Context, g *grant, do func(context.Context, *read.Query, *seen) error) error {
	q, now, err := s.seenQuery(ctx, g)
	if err != nil {
		return err
	}
	if now != nil {
		openCtx, stop := s.reauthorizeSeen(ctx, g, now)
		defer stop()
		ctx = openCtx
	}
	return lostOr(ctx, do(ctx, q, now))
}

// reauthorizeSeen returns a context that ends when the caller sees something else.
func (s *Server) reauthorizeSeen(ctx context.Context, g *grant, before *seen) (context.Context, context.CancelFunc) {
	if s.opts.Gate == nil {
		return context.WithCancel(ctx)
	}
	return g.reviewer.Reauthorize(ctx, func(ctx context.Context) (time.Time, error) {
		authenticatedUntil, err := g.reviewer.Reauthenticate(ctx, g.credentials, g.caller)
		if err != nil {
			return time.Time{}, err
		}
		now, until, err := s.seenBy(ctx, g)
		if err != nil {
			return time.Time{}, err
		}
		if now.All != before.All || !slices.Equal(now.within, before.within) {
			return time.Time{}, errNamespacesChanged
		}
		if authenticatedUntil.Before(until) {
			until = authenticatedUntil
		}
		return until, nil
	})
}

// lostOr returns the error that ends an open request: why the caller lost the right, or
// err.
func lostOr(ctx context.Context, err error) error {
	switch {
	case errors.Is(context.Cause(ctx), errNamespacesChanged):
		return errNamespacesChanged
	case access.IsLost(ctx):
		return context.Cause(ctx)
	}
	return err
}
