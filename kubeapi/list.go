package kubeapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/mirror"
)

func (c *call) listOrWatch() error {
	options, err := c.listOptions()
	if err != nil {
		return err
	}
	if options.Watch {
		return c.watch(options)
	}
	return c.list(options)
}

// list answers with a list or a page of it.
func (c *call) list(options *internalversion.ListOptions) error {
	match, version, after := mirror.Any, uint64(0), ""
	var err error
	if options.Continue != "" {
		match, version, after, err = c.resume(options)
	} else {
		match, version, err = c.match(options)
	}
	if err != nil {
		return err
	}
	c.q.Limit, c.q.Continue = options.Limit, options.Continue
	s, err := c.mirror.State(c.r.Context(), c.q, match, version)
	if mirror.ReasonOf(err) == mirror.Expired {
		if c.forward() {
			return nil
		}
		return expired(options.Continue != "", after)
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
	found, more := s.List(c.q, c.key(after), limit)
	if more {
		if c.q.Everything() {
			rest := int64(s.Count(c.q.Namespace, c.key(after), 0)) - limit
			meta.RemainingItemCount = &rest
		}
		meta.Continue = c.token(s.ResourceVersion(), informer.Key(found[limit-1])+"\x00")
		s.Hold()
	}
	return c.answerList(meta, found)
}

// match says which states will do.
func (c *call) match(options *internalversion.ListOptions) (mirror.Match, uint64, error) {
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return 0, 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	switch {
	case options.ResourceVersionMatch == metav1.ResourceVersionMatchExact,
		options.ResourceVersionMatch == "" && options.Limit > 0 && version > 0 && !c.single(): // as of old
		return mirror.Exact, version, nil
	case options.ResourceVersion == "":
		return mirror.Latest, 0, nil
	case version == 0:
		return mirror.Any, 0, nil
	}
	return mirror.NotOlderThan, version, nil
}

// single says that the query is about one object by its name, which has no pages.
func (c *call) single() bool {
	if c.q.Fields == nil || c.q.Resource.Namespaced && c.q.Namespace == "" {
		return false
	}
	name, ok := c.q.Fields.RequiresExactMatch("metadata.name")
	return ok && name != "" && len(names.IsPathSegmentName(name)) == 0
}

// continueToken is kube-apiserver's: where the next page begins, and of which
// state it is; -1 is the newest.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const (
	continueV1        = "meta.k8s.io/v1"
	anyState    int64 = -1
	listExpired       = "The resourceVersion for the provided list is too old."
	pageExpired       = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)

// token says where the page behind an object begins. The key is relative to the
// namespace of the request, if it has one.
func (c *call) token(version, start string) string {
	v, _ := parseVersion(version)
	return seal(int64(v), "/"+strings.TrimPrefix(start, c.prefix()))
}

func seal(version int64, start string) string {
	return base64.RawURLEncoding.EncodeToString(marshal(continueToken{continueV1, version, start}))
}

// prefix is what the keys of all objects of the request's namespace begin with.
func (c *call) prefix() string {
	if c.q.Namespace == "" {
		return ""
	}
	return c.q.Namespace + "/"
}

// key is the key of the object that a page begins behind, of where a token says
// that it begins: with the name that comes next after that of the object.
func (c *call) key(start string) string {
	if start == "" {
		return ""
	}
	return c.prefix() + strings.TrimSuffix(start, "\x00")
}

// resume reads a continue token.
func (c *call) resume(options *internalversion.ListOptions) (match mirror.Match, version uint64, start string, err error) {
	bad := func(format string, args ...any) (mirror.Match, uint64, string, error) {
		return 0, 0, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid"+format, args...))
	}
	raw, err := base64.RawURLEncoding.DecodeString(options.Continue)
	if err != nil {
		return bad(": %v", err)
	}
	var t continueToken
	if err := json.Unmarshal(raw, &t); err != nil {
		return bad(": %v", err)
	}
	if t.APIVersion != continueV1 {
		return bad(": server does not recognize this encoded version %v", t.APIVersion)
	}
	if t.ResourceVersion == 0 {
		return bad(": incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	}
	if t.StartKey == "" {
		return bad(": encoded start key empty (version meta.k8s.io/v1)")
	}
	full := t.StartKey
	if !strings.HasPrefix(full, "/") {
		full = "/" + full
	}
	if clean := path.Clean(full); clean != full {
		return bad(": %s", t.StartKey)
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" {
		return 0, 0, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	if t.ResourceVersion < 0 {
		return mirror.Latest, 0, full[1:], nil
	}
	return mirror.Exact, uint64(t.ResourceVersion), full[1:], nil
}

// expired is the error of a state that is not held any more: with a token that
// goes on with the newest one, if it was a page's.
func expired(page bool, start string) error {
	if !page {
		return apierrors.NewResourceExpired(listExpired)
	}
	out := apierrors.NewResourceExpired(pageExpired)
	out.ErrStatus.Continue = seal(anyState, "/"+start)
	return out
}
