package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/object"
)

// ChangesSince returns one change for each object that the query selects, or selected, and
// that is not what it was at a resourceVersion; the newest first, and the version that it is
// now. Before is the object then. It needs no history: it reaches as far back as the mirror
// retains changes, and beyond that the error is of reason Expired. The times are not known.
func (r *Reader) ChangesSince(ctx context.Context, q *Query, version uint64) ([]PastChange, string, error) {
	f, err := r.ready(ctx, q)
	if err != nil {
		return nil, "", err
	}
	if f.version() < version { // the caller has read from a mirror that is ahead of this one
		err := f.during(ctx, func(ctx context.Context) error { return f.future(ctx, version) })
		if large := (*TooLargeError)(nil); errors.As(err, &large) {
			err = mirror.Invalidf("%s have not reached the version %d: they are at %d", q, large.Want, large.Have)
		}
		if err != nil {
			return nil, "", err
		}
	}
	view, before, err := f.Internals().ViewBefore(decimal(version))
	if err != nil {
		if why := context.Cause(f.Context()); why != nil {
			return nil, "", why
		}
		return nil, "", &mirror.Error{Reason: mirror.Expired, Err: err, Message: fmt.Sprintf("the changes of %s since resourceVersion %d are not kept", q, version)}
	}
	defer view.Release()
	var found []PastChange
	for key, then := range before {
		if !q.selectsKey(key) {
			continue
		}
		namespace, name, namespaced := strings.Cut(key, "/")
		if !namespaced {
			namespace, name = "", namespace
		}
		now, exists := view.Get(namespace, name)
		if !exists {
			now = nil
		}
		if c, selected := q.changed(then, now, &f.selectors); selected {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b PastChange) int {
		return cmp.Or(cmp.Compare(object.Version(b.ResourceVersion), object.Version(a.ResourceVersion)), cmp.Compare(informer.Key(a.Object), informer.Key(b.Object)))
	})
	return found, view.ResourceVersion(), nil
}

// changed returns how the query sees that an object became another version of it. Either may
// be nil.
func (q *Query) changed(then, now *Object, seen *selectorCache) (c PastChange, selected bool) {
	was, is := then != nil && q.selects(then, seen), now != nil && q.selects(now, seen)
	c.Before, c.Object = then, now
	switch {
	case is && was:
		c.Type = Modified
	case is:
		c.Type = Added
	case was:
		if c.Type = Deleted; now == nil {
			c.Object = then
		}
	default:
		return c, false
	}
	c.ResourceVersion = c.Object.GetResourceVersion()
	return c, true
}
