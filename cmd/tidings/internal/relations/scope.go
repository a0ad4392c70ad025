package relations

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/object"
)

// scope is a resource in one namespace, or in all of them, as a walk reads it. A walk
// opens each scope once, so all that it reads of one is of one state.
type scope struct {
	walk     *walk
	resource cluster.Resource
	query    *read.Query // lists the scope
	err      error       // why it cannot be looked at

	// allowed says that the caller may list the scope; it is known once reviewed is true.
	// What is read before, or without the right, is only counted.
	reviewed, allowed bool

	state  *read.State // of the mirror
	listed []*read.Object
	byKey  map[string]*read.Object
	owned  map[types.UID][]*read.Object
}

var (
	errMayNotList  = errors.New("you may not list them")
	errTooMany     = fmt.Errorf("there are more than %d", maxScan)
	errManyReviews = errors.New("you may not list them, and there are too many to ask for one by one")
	errTooLate     = errors.New("it took too long")
)

// newScope returns a scope that is not open yet. A resource that is not namespaced has one
// scope.
func (w *walk) newScope(r cluster.Resource, namespace string) *scope {
	s := &scope{walk: w, resource: r}
	if !r.Namespaced {
		namespace = ""
	}
	p := read.Params{Cluster: w.cluster, Resource: r.GVR(), Verb: read.List, Namespace: namespace, Source: w.opts.Source, At: w.opts.At}
	if s.query, s.err = read.NewQuery(p); s.err == nil {
		s.err = s.query.Bind(r)
	}
	return s
}

// open reads the scope, or begins to. What is not mirrored yet, or is to be read live or
// from the history, is only read for callers that may list it.
func (s *scope) open() {
	if s.err != nil {
		return
	}
	p := s.query.Params()
	here := p.Source == read.Cache && p.At == nil
	if here && s.walk.cluster.Mirrors(s.resource.GVR(), p.Namespace) {
		s.state, s.err = s.walk.reads.State(s.walk.ctx, s.query, read.Any, 0)
		return
	}
	if s.review(); s.err == nil && !s.allowed {
		s.err = errMayNotList
	}
	switch {
	case s.err != nil:
	case here:
		s.state, s.err = s.walk.reads.State(s.walk.ctx, s.query, read.Any, 0)
	default:
		s.err = s.list()
	}
}

// review asks once whether the caller may list the scope.
func (s *scope) review() {
	if s.reviewed || s.err != nil {
		return
	}
	s.reviewed = true
	switch err := s.walk.authorize(s.query); {
	case err == nil:
		s.allowed = true
	case !apierrors.IsForbidden(err):
		s.err = err
	}
}

// list reads the scope without the mirror.
func (s *scope) list() error {
	s.byKey, s.owned = map[string]*read.Object{}, map[types.UID][]*read.Object{}
	_, err := s.walk.reads.List(s.walk.ctx, s.query, func(o *read.Object) error {
		if len(s.listed) == maxScan {
			return errTooMany
		}
		s.listed = append(s.listed, o)
		s.byKey[object.Key(o.GetNamespace(), o.GetName())] = o
		o.VisitJSON(func(json []byte) {
			for _, owner := range NewObject(json).Owners() {
				uid := types.UID(owner.UID)
				s.owned[uid] = append(s.owned[uid], o)
			}
		})
		return nil
	})
	return err
}

func (s *scope) close() {
	if s.state != nil {
		s.state.Release()
	}
}

// ownedBy returns the objects of an owner, whether or not the caller may see them.
func (s *scope) ownedBy(uid types.UID) []*read.Object {
	if s.state == nil {
		return s.owned[uid]
	}
	found, err := s.state.Owned(s.walk.ctx, uid, maxScan)
	if err != nil {
		s.err = err
	}
	return found
}

// all returns the objects of the scope, if the caller may list them and they are not too
// many to look at.
func (s *scope) all() ([]*read.Object, error) {
	if s.review(); s.err == nil && !s.allowed {
		return nil, errMayNotList
	}
	switch {
	case s.err != nil || s.state == nil:
		return s.listed, s.err
	case s.state.Count("", maxScan+1) > maxScan:
		return nil, errTooMany
	}
	return s.state.List(s.walk.ctx, "", 0)
}

// result is what became of a look at an object.
type result uint8

const (
	found    result = iota
	missing         // there is no such object
	hidden          // the caller may not see whether there is
	unlooked        // it could not be looked at
)

// see returns an object as the caller may see it: as part of the list, if it may list the
// scope, or by a read of its own.
func (s *scope) see(namespace, name string) (Object, result) {
	if s.review(); s.allowed && s.err == nil {
		var o *read.Object
		if s.state != nil {
			o, _ = s.state.Get(namespace, name)
		} else {
			o = s.byKey[object.Key(namespace, name)]
		}
		if o == nil {
			return Object{}, missing
		}
		return NewObject(o.JSON()), found
	}
	w := s.walk
	if w.reviews++; w.reviews > maxReviews && w.Authorize != nil {
		w.cannotLook(s.resource.String(), errManyReviews)
		return Object{}, unlooked
	}
	q, err := s.query.With(func(p *read.Params) { p.Verb, p.Namespace, p.Name = read.Get, namespace, name })
	if err == nil {
		err = w.authorize(q)
	}
	var o *read.Object
	if err == nil {
		o, _, err = w.reads.Get(w.ctx, q, read.Any, 0)
	}
	switch {
	case err == nil:
		return NewObject(o.JSON()), found
	case apierrors.IsForbidden(err):
		return Object{}, hidden
	case mirror.ReasonOf(err) == mirror.NotFound:
		return Object{}, missing
	}
	w.cannotLook(s.resource.String(), err)
	return Object{}, unlooked
}

// patience is how long a walk waits for resources that are being listed.
const patience = 8 * time.Second

// why returns why a resource could not be looked at, for people.
func why(ctx context.Context, err error) string {
	if ctx.Err() != nil {
		err = errTooLate
	}
	return err.Error()
}
