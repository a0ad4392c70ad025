package kubeapi

import (
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	printing "github.com/tidings-io/tidings/kubeapi/table"
	"github.com/tidings-io/tidings/read"
)

// tableMaker makes the Tables of one request.
type tableMaker struct {
	*call
	*printing.Printer
}

// newTable looks the kind's columns up, once for each request.
func (c *call) newTable() *tableMaker {
	return &tableMaker{c, printing.For(c.kind.gvk, c.customColumns())}
}

// customColumns are what the definition of a custom resource says of columns, nil
// if there is none, or it may not be read.
func (c *call) customColumns() *printing.CRDColumns {
	if !c.kind.custom {
		return nil
	}
	definition := c.q.Definition(c.r.Context())
	if definition == nil {
		return nil
	}
	// Reading it takes a while, and so does compiling its paths.
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

// definitionOf is a version of a CustomResourceDefinition, of any cluster.
type definitionOf struct {
	gvk  schema.GroupVersionKind
	hash uint64
}

// maxDefinitions is the number of them whose columns are remembered.
const maxDefinitions = 1024

var definitionSeed = maphash.MakeSeed()

// row reads each version of an object once for all Tables that show it.
func (t *tableMaker) row(o *read.Object) (*printing.Row, error) {
	made, err := t.cache.keep(key{o, variant{content: table, printer: t.Printer}}, func() (r any, size int, err error) {
		o.LookJSON(func(content []byte) {
			var row *printing.Row
			if row, err = t.Row(content); err == nil {
				r, size = row, row.Size()
			}
		})
		return r, size, err
	})
	if err != nil {
		return nil, fmt.Errorf("show %s %s/%s in a table: %w", t.kind.gvk.Kind, o.GetNamespace(), o.GetName(), err)
	}
	return made.(*printing.Row), nil
}

// inOrder returns the objects in the order in which a Table shows them.
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

// each shows the JSON of the rows, one after the other, each for the time of the
// call only.
func (t *tableMaker) each(found []*read.Object, show func([]byte) error) error {
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
			o.LookJSON(func(content []byte) { out = append(out, content...) })
		default:
			content, err := t.encoding(o, t.kind, t.form.partial())
			if err != nil {
				return err
			}
			out = append(out, content...)
		}
		out = append(out, '}')
		if err := show(out); err != nil {
			return err
		}
	}
	return nil
}

// around returns what is in front of and behind the rows of a Table; none says that
// there are none.
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

// table is the JSON of a Table of few objects.
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
