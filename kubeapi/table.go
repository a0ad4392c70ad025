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

// newTable looks the kind's columns up once for each request.
func (c *call) newTable() (*tableMaker, error) {
	if c.printer == nil {
		c.printer = printing.For(c.kind.gvk, c.customColumns())
	}
	return &tableMaker{c, c.printer}, nil
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

// row is what a Table shows of an object.
type row struct {
	*printing.Row
	object *read.Object
}

// rows reads each version of an object once for all Tables that show it.
func (t *tableMaker) rows(found []*read.Object) ([]row, error) {
	rows := make([]row, 0, len(found))
	for _, o := range found {
		made, err := t.cache.keep(key{o, variant{content: table, printer: t.Printer}}, func() (any, int, error) {
			r, err := t.Row(o.JSON())
			if err != nil {
				return nil, 0, fmt.Errorf("show %s %s/%s in a table: %w", t.kind.gvk.Kind, o.GetNamespace(), o.GetName(), err)
			}
			return r, r.Size(), nil
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{made.(*printing.Row), o})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return t.Compare(a.Row, b.Row) })
	return rows, nil
}

// table is the JSON of a Table.
func (t *tableMaker) table(meta metav1.ListMeta, found []*read.Object, headed bool) ([]byte, error) {
	out := append(typeMeta("Table", t.form.group()), `,"metadata":`...)
	out = append(out, marshal(meta)...)
	out = append(out, `,"columnDefinitions":`...)
	if headed {
		out = append(out, marshal(t.Columns())...)
	} else {
		out = append(out, "null"...)
	}
	rows, err := t.rows(found)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 && t.NullIfEmpty() {
		return append(out, `,"rows":null}`...), nil
	}
	out = append(out, `,"rows":[`...)
	now := time.Now()
	for i, r := range rows {
		if i > 0 {
			out = append(out, ',')
		}
		o := r.object
		out = append(append(out, `{"cells":`...), marshal(r.Cells(now))...)
		if conditions := r.Conditions(); conditions != nil {
			out = append(append(out, `,"conditions":`...), marshal(conditions)...)
		}
		out = append(out, `,"object":`...)
		switch t.form.include {
		case metav1.IncludeNone:
			out = append(out, "null"...)
		case metav1.IncludeObject:
			out = append(out, o.JSON()...)
		default:
			content, err := t.encoding(o, t.kind, t.form.partial())
			if err != nil {
				return nil, err
			}
			out = append(out, content...)
		}
		out = append(out, '}')
	}
	return append(out, "]}"...), nil
}
