package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/internal/plain"
	"github.com/tidings-io/tidings/kubeapi/table"
)

// grid is text in columns.
type grid struct {
	columns []string // the heads, nil for none
	rows    [][]string
}

// write writes the grid with its columns aligned.
func (g *grid) write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	line := func(cells []string) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, plain.Line(c))
		}
		fmt.Fprintln(tw)
	}
	if g.columns != nil {
		line(g.columns)
	}
	for _, row := range g.rows {
		line(row)
	}
	tw.Flush()
}

// row is a line of a table and the object it is of.
type row struct {
	namespace string
	cells     []string
}

// page is a table of objects of one resource, before it is known with which
// others it will be shown.
type page struct {
	columns []string
	rows    []row
}

// printerOf makes the rows of objects of one kind. A custom resource's own
// columns are not known here: it gets an age.
func printerOf(u *unstructured.Unstructured) *table.Printer {
	return table.For(u.GroupVersionKind(), &table.CRDColumns{})
}

// cellsOf are the cells of an object, one for each column of p.
func cellsOf(p *table.Printer, u *unstructured.Unstructured) ([]any, error) {
	object, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("show %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return p.Cells(object, time.Now())
}

// tableOfObjects makes the table that an API server would have made.
func tableOfObjects(objects []*unstructured.Unstructured, wide bool) (page, error) {
	if len(objects) == 0 {
		return page{columns: []string{"NAME"}}, nil
	}
	printer := printerOf(objects[0])
	p, show := columnsOf(printer.Columns(), wide)
	for _, u := range objects {
		cells, err := cellsOf(printer, u)
		if err != nil {
			return page{}, err
		}
		p.add(u.GetNamespace(), cells, show)
	}
	return p, nil
}

// columnsOf are the heads of the columns to show, and which ones those are.
func columnsOf(definitions []metav1.TableColumnDefinition, wide bool) (p page, show []int) {
	for i, c := range definitions {
		if wide || c.Priority == 0 {
			show = append(show, i)
			p.columns = append(p.columns, strings.ToUpper(c.Name))
		}
	}
	return p, show
}

// add adds a row. A server may send fewer cells than it has defined.
func (p *page) add(namespace string, cells []any, show []int) {
	out := row{namespace: namespace}
	for _, i := range show {
		cell := ""
		if i < len(cells) && cells[i] != nil {
			cell = fmt.Sprint(cells[i])
		}
		out.cells = append(out.cells, orNone(cell))
	}
	p.rows = append(p.rows, out)
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

// tableOfServer takes over a table that an API server made. definitions are
// those of the first page: the server may leave them out of the others.
func tableOfServer(t *metav1.Table, definitions []metav1.TableColumnDefinition, wide bool) (page, error) {
	p, show := columnsOf(definitions, wide)
	for _, r := range t.Rows {
		var of metav1.PartialObjectMetadata
		if len(r.Object.Raw) > 0 {
			if err := decode(r.Object.Raw, &of); err != nil {
				return page{}, fmt.Errorf("read a row of the table: %w", err)
			}
		}
		p.add(of.Namespace, r.Cells, show)
	}
	return p, nil
}
