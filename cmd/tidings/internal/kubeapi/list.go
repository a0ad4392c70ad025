package kubeapi

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
)

// listObjects answers with a list or one of its pages.
func (c *call) listObjects() error {
	options := c.list
	match, version, after := read.Any, uint64(0), ""
	var err error
	if options.Continue != "" {
		match, version, after, err = c.page()
	} else {
		match, version, err = c.match()
	}
	if err != nil {
		return err
	}
	s, err := c.reader.State(c.r.Context(), c.q, match, version)
	if mirror.ReasonOf(err) == mirror.Expired {
		if c.forward() {
			return nil
		}
		return c.expired(after)
	}
	if err != nil {
		return err
	}
	defer s.Release()
	limit := options.Limit
	if options.ResourceVersion == "0" {
		limit = 0 // as in kube-apiserver
	}
	meta := metav1.ListMeta{ResourceVersion: s.ResourceVersion()}
	if err := c.tableOptions(); err != nil {
		return err
	}
	if err := c.fits(true); err != nil {
		return err
	}
	if limit == 0 && after == "" && c.sharable() {
		if id, ok := s.Identity(); ok {
			return c.sharedList(id, meta, s)
		}
	}
	found, err := s.List(c.r.Context(), after, limit)
	if err != nil {
		return err
	}
	if limit > 0 && int64(len(found)) == limit && !c.single() {
		last := informer.Key(found[limit-1])
		// More objects follow, selected or not.
		if rest := s.Count(last, 1); rest > 0 {
			if c.q.Everything() {
				left := int64(s.Count(last, 0))
				meta.RemainingItemCount = &left
			}
			at, _ := parseVersion(s.ResourceVersion())
			meta.Continue = read.Token(c.q, at, last)
			s.Keep()
		}
	}
	return c.answerList(meta, found)
}

// match returns which states satisfy the list.
func (c *call) match() (read.Match, uint64, error) {
	options := c.list
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return 0, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	switch {
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		options.ResourceVersionMatch == "" && options.Limit > 0 && version > 0 && !c.single(): // legacy semantics
		return read.Exact, version, nil
	case options.ResourceVersion == "":
		return read.Latest, 0, nil
	case version == 0:
		return read.Any, 0, nil
	}
	return read.NotOlderThan, version, nil
}

// single reports whether the query selects one object by its name. Such a list has no
// pages.
func (c *call) single() bool {
	return c.q.Params().Name != "" && (!c.q.Resource().Namespaced || c.q.Namespace() != "")
}

const (
	listExpired = "The resourceVersion for the provided list is too old."
	pageExpired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// page decodes the continue token.
func (c *call) page() (match read.Match, version uint64, after string, err error) {
	match, version, after, err = c.q.Page()
	switch {
	case mirror.ReasonOf(err) == mirror.Expired:
		return 0, 0, "", apierrors.NewResourceExpired(pageExpired)
	case err != nil:
		return 0, 0, "", err
	case c.list.ResourceVersion != "" && c.list.ResourceVersion != "0":
		return 0, 0, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return match, version, after, nil
}

// expired is the error of a state that is no longer kept. For a page, it has a token that
// continues after a key with the newest state.
func (c *call) expired(after string) error {
	if c.list.Continue == "" {
		return apierrors.NewResourceExpired(listExpired)
	}
	out := apierrors.NewResourceExpired(pageExpired)
	out.ErrStatus.Continue = read.NewestToken(c.q, after)
	return out
}
