package fakeapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (c *call) serveGet(w http.ResponseWriter) error {
	f, err := negotiate(c.HTTP, shape{typed: c.res.typed, as: "PartialObjectMetadata"})
	if err != nil {
		return err
	}
	// A resourceVersion requests a state at least that new.
	rev, err := parseRevision(c.HTTP.URL.Query().Get("resourceVersion"))
	if err != nil {
		return err
	}
	if err := c.cluster.waitFor(c.HTTP.Context(), rev); err != nil {
		return err
	}
	rec, err := c.cluster.get(c.Resource, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, f.single(c.res, rec.obj))
	return nil
}

// listOptions decodes and validates the query of a list or watch.
func (c *call) listOptions() (*internalversion.ListOptions, selection, error) {
	opts := &internalversion.ListOptions{}
	sel := selection{namespace: c.Namespace}
	err := metainternal.ParameterCodec.DecodeParameters(c.HTTP.URL.Query(), metav1.SchemeGroupVersion, opts)
	if err != nil {
		return nil, sel, apierrors.NewBadRequest(err.Error())
	}
	watchList := !c.cluster.opts.NoWatchList && (c.fault == nil || !c.fault.NoWatchList)
	internalversion.SetListOptionsDefaults(opts, watchList)
	if errs := validation.ValidateListOptions(opts, watchList); len(errs) > 0 {
		return nil, sel, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	if c.Name != "" { // a watch of a single object
		byName := fields.OneTermEqualSelector("metadata.name", c.Name)
		if opts.FieldSelector == nil || opts.FieldSelector.Empty() {
			opts.FieldSelector = byName
		} else {
			opts.FieldSelector = fields.AndSelectors(opts.FieldSelector, byName)
		}
	}
	sel.match, err = c.res.matcher(opts)
	return opts, sel, err
}

func (c *call) serveList(w http.ResponseWriter) error {
	f, err := negotiate(c.HTTP, shape{typed: c.res.typed, as: "PartialObjectMetadataList"})
	if err != nil {
		return err
	}
	opts, sel, err := c.listOptions()
	if err != nil {
		return err
	}
	p, lm, err := c.list(opts, sel)
	if err != nil {
		return err
	}
	list, err := f.list(c.res, p.items, lm)
	if err != nil {
		return err
	}
	f.write(w, http.StatusOK, list)
	return nil
}

// list determines the revision of a list and collects its objects.
func (c *call) list(opts *internalversion.ListOptions, sel selection) (page, metav1.ListMeta, error) {
	limit := opts.Limit
	rev, err := parseRevision(opts.ResourceVersion)
	if err != nil {
		return page{}, metav1.ListMeta{}, err
	}
	exact := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact ||
		opts.ResourceVersionMatch == "" && limit > 0 && rev > 0 // as before resourceVersionMatch existed
	var start string
	if opts.Continue != "" {
		if rev > 0 {
			return page{}, metav1.ListMeta{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		token, err := decodeContinue(opts.Continue)
		if err != nil {
			return page{}, metav1.ListMeta{}, apierrors.NewBadRequest(err.Error())
		}
		// A negative revision is the token of errContinueTooOld.
		start, exact = sel.prefix()+strings.TrimPrefix(token.Start, "/"), token.Revision > 0
		if exact {
			rev = uint64(token.Revision)
		}
	} else if opts.ResourceVersion == "0" {
		limit = 0 // lists from the watch cache were never paged
	}
	if err := c.cluster.waitFor(c.HTTP.Context(), rev); err != nil {
		return page{}, metav1.ListMeta{}, err
	}

	c.cluster.mu.RLock()
	defer c.cluster.mu.RUnlock()
	if !exact {
		rev = c.cluster.rev
	} else if rev < c.res.floor {
		if opts.Continue != "" {
			return page{}, metav1.ListMeta{}, errContinueTooOld(encodeContinue(-1, start[len(sel.prefix()):]))
		}
		return page{}, metav1.ListMeta{}, errListTooOld()
	}
	p := c.res.collect(rev, sel, start, limit)
	lm := metav1.ListMeta{ResourceVersion: strconv.FormatUint(rev, 10)}
	if p.more {
		last := p.items[len(p.items)-1].key
		lm.Continue = encodeContinue(int64(rev), last[len(sel.prefix()):]+"\x00")
		if sel.match == nil {
			lm.RemainingItemCount = &p.remaining
		}
	}
	return p, lm, nil
}

func parseRevision(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	rev, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version %q: %v", s, err))
	}
	return rev, nil
}

// continueToken has the format of kube-apiserver's tokens: the revision and the
// key to continue at, without the namespace of a namespaced list.
type continueToken struct {
	Version  string `json:"v"`
	Revision int64  `json:"rv"`
	Start    string `json:"start"`
}

const continueVersion = "meta.k8s.io/v1"

func encodeContinue(rev int64, start string) string {
	token, _ := json.Marshal(continueToken{continueVersion, rev, "/" + start}) // cannot fail
	return base64.RawURLEncoding.EncodeToString(token)
}

func decodeContinue(s string) (continueToken, error) {
	var token continueToken
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &token)
	}
	switch {
	case err != nil:
		return token, fmt.Errorf("continue key is not valid: %w", err)
	case token.Version != continueVersion:
		return token, fmt.Errorf("continue key is not valid: server does not recognize this encoded version %s", token.Version)
	case token.Revision == 0:
		return token, fmt.Errorf("continue key is not valid: incorrect encoded start resourceVersion (version %s)", continueVersion)
	case token.Start == "":
		return token, fmt.Errorf("continue key is not valid: encoded start key empty (version %s)", continueVersion)
	}
	return token, nil
}
