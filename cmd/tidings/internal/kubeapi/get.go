package kubeapi

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// getObject answers with one object.
func (c *call) getObject() error {
	version, err := parseVersion(c.get.ResourceVersion)
	if err != nil && c.kind.uncached() {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	if err != nil {
		return plainStatus(http.StatusInternalServerError, "", err.Error())
	}
	match := read.NotOlderThan
	switch c.get.ResourceVersion {
	case "":
		match = read.Latest
	case "0":
		match = read.Any
	}
	o, _, err := c.reader.Get(c.r.Context(), c.q, match, version)
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
func (c *call) answer(o *read.Object) error {
	if c.form.media == asJSON && c.form.content == whole && !c.form.pretty {
		b := c.begin(c.form.mediaType)
		o.VisitJSON(func(content []byte) { b.add(content, newline) })
		b.end()
		return nil
	}
	leave, err := c.admit(c.r.Context(), c.cost([]*read.Object{o}))
	if err != nil {
		return err
	}
	defer leave()
	var content []byte
	switch {
	case c.form.content == table:
		content, err = c.newTable().table(metav1.ListMeta{ResourceVersion: o.GetResourceVersion()}, []*read.Object{o}, true)
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
