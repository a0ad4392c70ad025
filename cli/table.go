package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// table is text in columns.
type table struct {
	columns []string // the heads, nil for none
	rows    [][]string
}

// write writes the table with its columns aligned.
func (t *table) write(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	line := func(cells []string) {
		for i, c := range cells {
			if i > 0 {
				fmt.Fprint(tw, "\t")
			}
			fmt.Fprint(tw, oneLine(c))
		}
		fmt.Fprintln(tw)
	}
	if t.columns != nil {
		line(t.columns)
	}
	for _, row := range t.rows {
		line(row)
	}
	tw.Flush()
}

// oneLine keeps what would break a table, or a terminal, out of a cell.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n' || r == '\r' || r == '\v' || r == '\f':
			return ' '
		case r < ' ' || r == 0x7f:
			return -1
		}
		return r
	}, s)
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

// tableOfObjects makes the table that an API server would have made, as far as
// kinds are known here.
func tableOfObjects(objects []*unstructured.Unstructured, wide bool) page {
	p := page{columns: []string{"NAME"}}
	if len(objects) == 0 {
		return p
	}
	var show []column
	for _, c := range columnsOf(objects[0]) {
		if wide || !c.wide {
			show = append(show, c)
			p.columns = append(p.columns, c.name)
		}
	}
	p.columns = append(p.columns, "AGE")
	for _, u := range objects {
		cells := []string{u.GetName()}
		for _, c := range show {
			cells = append(cells, orNone(c.value(u.Object)))
		}
		p.rows = append(p.rows, row{u.GetNamespace(), append(cells, orUnknown(age(u)))})
	}
	if objects[0].GetKind() == "Event" { // nobody looks for one by name or age
		last := len(p.columns) - 1
		p.columns = p.columns[1:last]
		for i := range p.rows {
			p.rows[i].cells = p.rows[i].cells[1:last]
		}
	}
	return p
}

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func orUnknown(s string) string {
	if s == "" {
		return "<unknown>"
	}
	return s
}

// tableOfServer takes over a table that an API server made. definitions are
// those of the first page: the server may leave them out of the others.
func tableOfServer(t *metav1.Table, definitions []metav1.TableColumnDefinition, wide bool) (page, error) {
	var p page
	var show []int
	for i, c := range definitions {
		if wide || c.Priority == 0 {
			show = append(show, i)
			p.columns = append(p.columns, strings.ToUpper(c.Name))
		}
	}
	for _, r := range t.Rows {
		var of metav1.PartialObjectMetadata
		if len(r.Object.Raw) > 0 {
			if err := decode(r.Object.Raw, &of); err != nil {
				return page{}, fmt.Errorf("read a row of the table: %w", err)
			}
		}
		out := row{namespace: of.Namespace}
		for _, i := range show {
			cell := ""
			if i < len(r.Cells) && r.Cells[i] != nil {
				cell = fmt.Sprint(r.Cells[i])
			}
			out.cells = append(out.cells, orNone(cell))
		}
		p.rows = append(p.rows, out)
	}
	return p, nil
}
