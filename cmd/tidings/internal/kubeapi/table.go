package kubeapi

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	printing "github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
)

// tableMaker makes the Tables of one request.
type tableMaker struct {
	*call
	*printing.Printer
}

// newTable returns a tableMaker with the columns of the kind.
func (c *call) newTable() *tableMaker {
	return &tableMaker{c, printing.For(c.kind.gvk, c.customColumns())}
}

// customColumns returns the columns of a custom resource's definition, nil if there is no
// definition or the mirror may not read it.
func (c *call) customColumns() *printing.CRDColumns {
	if !c.kind.custom {
		return nil
	}
	definition := c.q.Definition(c.r.Context())
	if definition == nil {
		return nil
	}
	// Decoding the definition and compiling its paths takes long: cache the result.
	at := definitionOf{c.kind.gvk, maphash.Bytes(definitionSeed, definition)}
	if known, ok := c.columns.Get(at); ok {
		return known.(*printing.CRDColumns)
	}
	columns, err := printing.ColumnsOf(definition, c.kind.gvk.Version)
	if err != nil {
		c.log.Warn("a custom resource is shown without its own columns", "kind", c.kind.gvk.String(), "err", err)
		return nil
	}
	c.columns.Add(at, columns)
	return columns
}

// definitionOf identifies the content of a CustomResourceDefinition, in any cluster.
type definitionOf struct {
	gvk  schema.GroupVersionKind
	hash uint64
}

// maxDefinitions bounds the definitions whose columns are cached.
const maxDefinitions = 1024

var definitionSeed = maphash.MakeSeed()

// row returns the row of an object. It is made once for all Tables with that version.
func (t *tableMaker) row(o *read.Object) (*printing.Row, error) {
	made, err := t.cache.get(encodingKey{o, variant{content: table, printer: t.Printer}}, func() (r any, size int, err error) {
		o.VisitJSON(func(content []byte) {
			var row *printing.Row
			if row, err = t.Row(content); err == nil {
				r, size = row, row.Size()
			}
		})
		return r, size, err
	})
	if err != nil {
		return nil, fmt.Errorf("make the table row of %s %s/%s: %w", t.kind.gvk.Kind, o.GetNamespace(), o.GetName(), err)
	}
	return made.(*printing.Row), nil
}

// inOrder returns the objects in the order of the rows of a Table.
func (t *tableMaker) inOrder(found []*read.Object) ([]*read.Object, error) {
	if !t.Ordered() || len(found) < 2 {
		return found, nil
	}
	rows := make(map[*read.Object]*printing.Row, len(found))
	for _, o := range found {
		var err error
		if rows[o], err = t.row(o); err != nil {
			return nil, err
		}
	}
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b *read.Object) int { return t.Compare(rows[a], rows[b]) })
	return found, nil
}

// each calls yield with the JSON of each row, which is valid during the call only.
func (t *tableMaker) each(found []*read.Object, yield func([]byte) error) error {
	found, err := t.inOrder(found)
	if err != nil {
		return err
	}
	now := time.Now()
	var out []byte
	for _, o := range found {
		if err := t.ended(); err != nil {
			return err
		}
		r, err := t.row(o)
		if err != nil {
			return err
		}
		out = append(append(out[:0], `{"cells":`...), marshal(r.Cells(now))...)
		if conditions := r.Conditions(); conditions != nil {
			out = append(append(out, `,"conditions":`...), marshal(conditions)...)
		}
		out = append(out, `,"object":`...)
		switch t.form.include {
		case metav1.IncludeNone:
			out = append(out, "null"...)
		case metav1.IncludeObject:
			o.VisitJSON(func(content []byte) { out = append(out, content...) })
		default:
			content, err := t.encoding(o, t.kind, t.form.partial())
			if err != nil {
				return err
			}
			out = append(out, content...)
		}
		out = append(out, '}')
		if err := yield(out); err != nil {
			return err
		}
	}
	return nil
}

// around returns the head and tail of a Table; none says that there are no rows.
func (t *tableMaker) around(meta metav1.ListMeta, headed, none bool) (head, tail []byte) {
	head = append(typeMeta("Table", t.form.group()), `,"metadata":`...)
	head = append(append(head, marshal(meta)...), `,"columnDefinitions":`...)
	if headed {
		head = append(head, marshal(t.Columns())...)
	} else {
		head = append(head, "null"...)
	}
	if none && t.NullIfEmpty() {
		return append(head, `,"rows":null`...), []byte("}")
	}
	return append(head, `,"rows":[`...), []byte("]}")
}

// table returns the JSON of a Table of few objects.
func (t *tableMaker) table(meta metav1.ListMeta, found []*read.Object, headed bool) ([]byte, error) {
	out, tail := t.around(meta, headed, len(found) == 0)
	first := true
	err := t.each(found, func(row []byte) error {
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(out, row...)
		return nil
	})
	return append(out, tail...), err
}
