package kubeapi

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	names "k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/mirror"
)

// get answers with one object.
func (c *call) get() error {
	options, err := c.getOptions()
	if err != nil {
		return err
	}
	version, err := parseVersion(options.ResourceVersion)
	if err != nil {
		return plainStatus(http.StatusInternalServerError, "", err.Error())
	}
	match := mirror.NotOlderThan
	switch options.ResourceVersion {
	case "":
		match = mirror.Latest
	case "0":
		match = mirror.Any
	}
	c.q.Name = c.info.Name
	if wrong := names.IsPathSegmentName(c.q.Name); len(wrong) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", c.q.Name, strings.Join(wrong, ";")))
	}
	o, err := c.mirror.One(c.r.Context(), c.q, match, version)
	if err != nil {
		return err
	}
	if err := c.tableOptions(); err != nil {
		return err
	}
	if err := c.fits(false); err != nil {
		return err
	}
	return c.answer(o)
}

// answer sends one object.
func (c *call) answer(o *mirror.Object) error {
	if c.form.media == asJSON && c.form.content == whole && !c.form.pretty {
		b := c.begin(c.form.mediaType)
		o.LookJSON(func(content []byte) { b.add(content, newline) })
		b.end()
		return nil
	}
	leave, err := c.admit(c.cost([]*mirror.Object{o}))
	if err != nil {
		return err
	}
	defer leave()
	var content []byte
	switch {
	case c.form.content == table:
		var t *tableMaker
		if t, err = c.newTable(); err != nil {
			return err
		}
		content, err = t.table(metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, []*mirror.Object{o}, true)
	default:
		content, err = c.encoding(o, c.kind, c.form)
	}
	if err != nil {
		return err
	}
	b := c.begin(c.form.mediaType)
	switch {
	case c.form.media == asProtobuf:
		kind, apiVersion := c.form.object(c.kind)
		b.add(envelope(kind, apiVersion, content))
	case c.form.media == asYAML || c.form.pretty:
		if content, err = c.form.finish(content); err != nil {
			return err
		}
		b.add(content)
	default:
		b.add(content, newline)
	}
	b.end()
	return nil
}

var newline = []byte("\n")
