package kubeapi

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/mirror"
	"github.com/tidings-io/tidings/read"
)

// listObjects answers with a list or a page of it.
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
		limit = 0 // as kube-apiserver has it
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
		// Whether anything is left, selected or not.
		if rest := s.Count(last, 1); rest > 0 {
			if c.q.Everything() {
				left := int64(s.Count(last, 0))
				meta.RemainingItemCount = &left
			}
			at, _ := parseVersion(s.ResourceVersion())
			meta.Continue = read.Token(c.q, at, last)
			s.Hold()
		}
	}
	return c.answerList(meta, found)
}

// match says which states will do.
func (c *call) match() (read.Match, uint64, error) {
	options := c.list
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return 0, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	switch {
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		options.ResourceVersionMatch == "" && options.Limit > 0 && version > 0 && !c.single(): // as of old
		return read.Exact, version, nil
	case options.ResourceVersion == "":
		return read.Latest, 0, nil
	case version == 0:
		return read.Any, 0, nil
	}
	return read.NotOlderThan, version, nil
}

// single says that the query is about one object by its name, which has no pages.
func (c *call) single() bool {
	return c.q.Ask().Name != "" && (!c.q.Resource().Namespaced || c.q.Namespace() != "")
}

const (
	listExpired = "The resourceVersion for the provided list is too old."
	pageExpired = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// page reads the continue token.
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

// expired is the error of a state that is not held any more: with a token that goes
// on behind a key with the newest one, if it was a page's.
func (c *call) expired(after string) error {
	if c.list.Continue == "" {
		return apierrors.NewResourceExpired(listExpired)
	}
	out := apierrors.NewResourceExpired(pageExpired)
	out.ErrStatus.Continue = read.NewestToken(c.q, after)
	return out
}
