package kubeapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// A list has three parts: a head with the list's version, the items, and a tail. In JSON
// and protobuf the items are the stored encodings of the objects, one after the other.

// answerList sends a list.
func (c *call) answerList(meta metav1.ListMeta, found []*read.Object) error {
	leave, err := c.admit(c.r.Context(), c.cost(found))
	if err != nil {
		return err
	}
	defer leave()
	if c.form.content == table {
		t := c.newTable()
		head, tail := t.around(meta, true, len(found) == 0)
		return c.send("rows", head, tail, found, t.each)
	}
	size, err := c.itemsSize(found)
	if err != nil {
		return err
	}
	head, tail := c.around(meta, size, len(found) == 0)
	return c.send("items", head, tail, found, c.each)
}

// each calls yield for the encoded items of a list. An item is valid during the call
// only.
type each func(found []*read.Object, yield func(item []byte) error) error

// send sends a list item by item, between head and tail, which are JSON or protobuf.
func (c *call) send(field string, head, tail []byte, found []*read.Object, items each) error {
	if len(found) == 0 && c.form.media != asProtobuf {
		return c.finished(append(head, bytes.TrimSuffix(tail, newline)...))
	}
	l, err := c.form.layout(field, head, tail)
	if err != nil {
		return err
	}
	if err := c.convertible(l, found, items); err != nil {
		return err
	}
	b := c.begin(c.form.mediaType)
	b.add(l.head)
	err = l.join(items, found, func(part []byte) error {
		b.add(part)
		return b.err
	})
	if err == nil {
		b.add(l.tail)
	}
	return b.close(err)
}

// join calls add with the items of a list as they are sent, and what separates them.
func (l *layout) join(items each, found []*read.Object, add func([]byte) error) error {
	first := true
	return items(found, func(item []byte) error {
		if !first && l.comma != nil {
			if err := add(l.comma); err != nil {
				return err
			}
		}
		first = false
		if l.item != nil {
			var err error
			if item, err = l.item(item); err != nil {
				return err
			}
		}
		return add(item)
	})
}

// convertible returns an error if an item cannot be converted to YAML, before the answer
// has begun.
func (c *call) convertible(l layout, found []*read.Object, items each) error {
	if c.form.media != asYAML {
		return nil
	}
	for i, o := range found {
		sure := true
		o.VisitJSON(func(content []byte) { sure = surelyYAML(content) })
		if sure {
			continue
		}
		if err := l.join(items, found[i:i+1], func([]byte) error { return nil }); err != nil {
			return err
		}
	}
	return c.ended()
}

// ended returns an error if the client no longer waits for the answer: the cause of the
// request's context, unless the answer has more time, see call.until.
func (c *call) ended() error {
	ctx := c.r.Context()
	if err := ctx.Err(); err == nil || err == context.DeadlineExceeded && time.Now().Before(c.until) {
		return nil
	}
	return context.Cause(ctx)
}

// finished sends an answer, given its JSON.
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

// sharable reports whether the items of the list can be the same for all requests.
func (c *call) sharable() bool {
	return acceptsGzip(c.r) && c.form.content != table && c.form.media != asYAML && !c.form.pretty
}

// fewItems is the number of items below which a selected list is not cached.
const fewItems = 32

// sharedList sends a list whose items may already be packed for another request.
func (c *call) sharedList(id read.Identity, meta metav1.ListMeta, s *read.State) error {
	var found []*read.Object
	list := func() (err error) {
		if found == nil {
			found, err = s.List(c.r.Context(), "", 0)
		}
		return err
	}
	if !c.q.Everything() {
		if err := list(); err != nil {
			return err
		}
		if len(found) < fewItems {
			return c.answerList(meta, found)
		}
	}
	params := c.q.Params()
	k := listKey{state: id, namespace: c.q.Namespace(), variant: c.form.variant(c.kind)}
	if params.Labels != nil {
		k.labels = params.Labels.String()
	}
	if params.Fields != nil {
		k.fields = params.Fields.String()
	}
	admit := func(ctx context.Context) (leave func(), err error) {
		if err := list(); err != nil {
			return nil, err
		}
		cost := c.cost(found)
		cost.Bytes += min(2*c.lists.maxOfOne(), c.size(found).all/4)
		return c.admit(ctx, cost)
	}
	made, err := c.lists.get(c.r.Context(), k, admit, func() (*packed, error) { return c.pack(found) })
	if errors.Is(err, errTooLong) {
		if err := list(); err != nil {
			return err
		}
		return c.answerList(meta, found)
	}
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
		if c.ended() != nil {
			panic(http.ErrAbortHandler) // the client must not take the sent part for the whole
		}
		if _, err := c.w.Write(part); err != nil {
			break // the client is gone
		}
	}
	return nil
}

// pack packs the items of a list.
func (c *call) pack(found []*read.Object) (*packed, error) {
	p := packer{from: gzipFrom, max: c.lists.maxOfOne()}
	l, err := c.form.layout("items", nil, nil)
	if err != nil {
		return nil, err
	}
	err = l.join(c.each, found, p.add)
	made, tooLong := p.done()
	return made, cmp.Or(err, tooLong)
}

// itemsSize returns the size of the items, which precedes them in protobuf and is not
// needed otherwise. It fails if an object cannot be encoded, before the answer has
// begun.
func (c *call) itemsSize(found []*read.Object) (int64, error) {
	if c.form.media != asProtobuf && c.form.content == whole {
		return 0, nil // they are sent as stored
	}
	var size int64
	for _, o := range found {
		if err := c.ended(); err != nil {
			return 0, err
		}
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

// each calls yield with the encodings of the objects as items of a list.
func (c *call) each(found []*read.Object, yield func(item []byte) error) error {
	var item []byte
	for _, o := range found {
		if err := c.ended(); err != nil {
			return err
		}
		var err error
		if c.form.media != asProtobuf && c.form.content == whole {
			o.VisitJSON(func(content []byte) {
				item = c.kind.item(item[:0], content)
				err = yield(item)
			})
		} else {
			var content []byte
			if content, err = c.encoding(o, c.kind, c.form); err == nil {
				err = yield(content)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var comma = []byte(",")

// around returns the head and tail of a list whose items have a size; none says that
// there are no items.
func (c *call) around(meta metav1.ListMeta, size int64, none bool) (head, tail []byte) {
	kind, apiVersion := c.form.object(c.kind)
	switch {
	case c.form.media == asProtobuf:
		return protobufAround(kind+"List", apiVersion, meta, size)
	case c.kind.custom && c.form.content == whole:
		// kube-apiserver encodes these as maps, with sorted keys.
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

// protobufAround is around for protobuf. The metadata of a list is its first field, the
// items are the second.
func protobufAround(kind, apiVersion string, meta metav1.ListMeta, size int64) (head, tail []byte) {
	about, err := meta.Marshal()
	if err != nil {
		panic(err) // ListMeta can always be encoded
	}
	first := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), about)
	head, tail = envelopeAround(kind, apiVersion, len(first)+int(size))
	return append(head, first...), tail
}
