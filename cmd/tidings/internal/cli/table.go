package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/cmd/tidings/internal/termsafe"
)

// grid is text in columns.
type grid struct {
	columns []string // the headers, nil for none
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
			fmt.Fprint(tw, termsafe.Line(c))
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

// row is a line of a table and the namespace of its object.
type row struct {
	namespace string
	cells     []string
}

// tableRows is the table of one result, before tables joins it with others.
type tableRows struct {
	columns []string
	rows    []row
}

// printerFor returns the printer of objects of u's kind. The columns of a custom
// resource are not known here: it gets an age.
func printerFor(u *unstructured.Unstructured) *table.Printer {
	return table.For(u.GroupVersionKind(), &table.CRDColumns{})
}

// cellsOf returns the cells of an object, one for each column of p.
func cellsOf(p *table.Printer, u *unstructured.Unstructured) ([]any, error) {
	object, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("show %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return p.Cells(object, time.Now())
}

// tableOfObjects makes the table that an API server would make.
func tableOfObjects(objects []*unstructured.Unstructured, wide bool) (tableRows, error) {
	if len(objects) == 0 {
		return tableRows{columns: []string{"NAME"}}, nil
	}
	printer := printerFor(objects[0])
	p, show := columnsOf(printer.Columns(), wide)
	for _, u := range objects {
		cells, err := cellsOf(printer, u)
		if err != nil {
			return tableRows{}, err
		}
		p.add(u.GetNamespace(), cells, show)
	}
	return p, nil
}

// columnsOf returns a table with the headers of the columns to show, and the
// indexes of these columns.
func columnsOf(definitions []metav1.TableColumnDefinition, wide bool) (p tableRows, show []int) {
	for i, c := range definitions {
		if wide || c.Priority == 0 {
			show = append(show, i)
			p.columns = append(p.columns, strings.ToUpper(c.Name))
		}
	}
	return p, show
}

// add adds a row. A server may send fewer cells than it has defined.
func (p *tableRows) add(namespace string, cells []any, show []int) {
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

// tableOfServer converts a table of an API server. definitions are those of the
// first page: the server may leave them out of later pages.
func tableOfServer(t *metav1.Table, definitions []metav1.TableColumnDefinition, wide bool) (tableRows, error) {
	p, show := columnsOf(definitions, wide)
	for _, r := range t.Rows {
		var of metav1.PartialObjectMetadata
		if len(r.Object.Raw) > 0 {
			if err := decode(r.Object.Raw, &of); err != nil {
				return tableRows{}, fmt.Errorf("read a row of the table: %w", err)
			}
		}
		p.add(of.Namespace, r.Cells, show)
	}
	return p, nil
}
