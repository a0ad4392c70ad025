package kubeapi

import (
	"bytes"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/read"
)

// A list is put together of three parts: what is in front of the items, with the
// list's version in it, the items, and what is behind them. In JSON and protobuf
// the items are the stored encodings of the objects, one behind the other.

// answerList sends a list.
func (c *call) answerList(meta metav1.ListMeta, found []*read.Object) error {
	switch {
	case c.form.content == table:
		t, err := c.newTable()
		if err != nil {
			return err
		}
		content, err := t.table(meta, found, true)
		if err != nil {
			return err
		}
		return c.finished(content)
	case c.form.media == asYAML || c.form.pretty:
		head, tail := c.around(meta, 0, len(found) == 0)
		whole := bytes.NewBuffer(head)
		if err := c.items(found, func(b []byte) { whole.Write(b) }); err != nil {
			return err
		}
		return c.finished(append(whole.Bytes(), bytes.TrimSuffix(tail, newline)...))
	}
	size, err := c.itemsSize(found)
	if err != nil {
		return err
	}
	head, tail := c.around(meta, size, len(found) == 0)
	b := c.begin(c.form.mediaType)
	defer b.end()
	b.add(head)
	err = c.items(found, func(part []byte) { b.add(part) })
	b.add(tail)
	return err
}

// finished sends an answer of which the JSON is given.
func (c *call) finished(content []byte) error {
	content, err := c.form.finish(content)
	if err != nil {
		return err
	}
	b := c.begin(c.form.mediaType)
	b.add(content)
	b.end()
	return nil
}

// sharable says that the items of the list can be the same for all who ask.
func (c *call) sharable() bool {
	return acceptsGzip(c.r) && c.form.content != table && c.form.media != asYAML && !c.form.pretty
}

// fewItems is how many items are not worth looking for among the answers.
const fewItems = 32

// sharedList sends a list of which the items may have been compressed for others.
func (c *call) sharedList(id read.Identity, meta metav1.ListMeta, s *read.State) error {
	var found []*read.Object
	if !c.q.Everything() {
		if found = s.List("", 0); len(found) < fewItems {
			return c.answerList(meta, found)
		}
	}
	ask := c.q.Ask()
	k := answerKey{of: id, namespace: c.q.Namespace(), what: c.variant()}
	if ask.Labels != nil {
		k.labels = ask.Labels.String()
	}
	if ask.Fields != nil {
		k.fields = ask.Fields.String()
	}
	made, err := c.answers.get(c.r.Context(), k, func() (*packed, error) {
		if found == nil {
			found = s.List("", 0)
		}
		p := packer{from: gzipFrom}
		if err := c.items(found, p.add); err != nil {
			return nil, err
		}
		return p.done(), nil
	})
	if err != nil {
		return err
	}
	head, tail := c.around(meta, made.size, made.size == 0)
	header := c.w.Header()
	header.Set("Content-Type", c.form.mediaType)
	if made.deflated {
		header.Set("Content-Encoding", "gzip")
		header.Add("Vary", "Accept-Encoding")
	}
	length, parts := made.within(head, tail)
	header.Set("Content-Length", strconv.Itoa(length))
	for _, part := range parts {
		if _, err := c.w.Write(part); err != nil {
			break // a client that is gone needs no answer
		}
	}
	return nil
}

// variant is the form of the items.
func (c *call) variant() variant {
	v := variant{media: c.form.media, content: c.form.content, custom: c.kind.custom}
	if c.form.content == metadata {
		v.version = c.form.convert.Version
	}
	return v
}

// itemsSize is how many bytes the items take, which protobuf says in front of
// them; nobody else needs to know. What cannot be encoded shows here, before the
// answer has begun.
func (c *call) itemsSize(found []*read.Object) (int64, error) {
	if c.form.media != asProtobuf && c.form.content == whole {
		return 0, nil // as stored
	}
	var size int64
	for _, o := range found {
		content, err := c.encoding(o, c.kind, c.form)
		if err != nil {
			return 0, err
		}
		size += itemSize(content)
	}
	return size, nil
}

// itemSize is the size of an item of a list in protobuf.
func itemSize(content []byte) int64 {
	return int64(protowire.SizeTag(2) + protowire.SizeBytes(len(content)))
}

// items puts the items together from the encodings of the objects, between which
// JSON has commas.
func (c *call) items(found []*read.Object, add func([]byte)) error {
	if c.form.media != asProtobuf && c.form.content == whole {
		for i, o := range found {
			if i > 0 {
				add(comma)
			}
			o.LookJSON(func(content []byte) { c.kind.item(content, add) })
		}
		return nil
	}
	var frame [2 + 10]byte
	for i, o := range found {
		content, err := c.encoding(o, c.kind, c.form)
		if err != nil {
			return err
		}
		switch {
		case c.form.media == asProtobuf:
			add(protowire.AppendVarint(protowire.AppendTag(frame[:0], 2, protowire.BytesType), uint64(len(content))))
		case i > 0:
			add(comma)
		}
		add(content)
	}
	return nil
}

var comma = []byte(",")

// around returns what is in front of and behind the items of a list, which take
// so many bytes; none says that there are no items.
func (c *call) around(meta metav1.ListMeta, size int64, none bool) (head, tail []byte) {
	kind, apiVersion := c.form.object(c.kind)
	switch {
	case c.form.media == asProtobuf:
		return protobufAround(kind+"List", apiVersion, meta, size)
	case c.kind.custom && c.form.content == whole:
		// A map with sorted keys.
		about := map[string]any{"continue": meta.Continue, "resourceVersion": meta.ResourceVersion}
		if meta.RemainingItemCount != nil {
			about["remainingItemCount"] = *meta.RemainingItemCount
		}
		head = append(append([]byte(`{"apiVersion":`), quoted(apiVersion)...), `,"items":[`...)
		tail = append(append([]byte(`],"kind":`), quoted(kind+"List")...), `,"metadata":`...)
		return head, append(append(tail, marshal(about)...), "}\n"...)
	}
	head = append(append(typeMeta(kind+"List", apiVersion), `,"metadata":`...), marshal(meta)...)
	if none && c.form.content == metadata {
		return append(head, `,"items":null`...), []byte("}\n") // as kube-apiserver has it
	}
	return append(head, `,"items":[`...), []byte("]}\n")
}

// protobufAround does the same in protobuf, where the metadata of a list is its
// first field and the items are the second.
func protobufAround(kind, apiVersion string, meta metav1.ListMeta, size int64) (head, tail []byte) {
	about, err := meta.Marshal()
	if err != nil {
		panic(err) // there is nothing in it that cannot be written
	}
	first := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), about)
	head, tail = envelopeAround(kind, apiVersion, len(first)+int(size))
	return append(head, first...), tail
}
