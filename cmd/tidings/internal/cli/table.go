package cli

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

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

// printerFor returns the printer of objects of u's kind. The columns of a custom
// resource are not known here: it gets an age.
func printerFor(u *unstructured.Unstructured) *table.Printer {
	return table.For(u.GroupVersionKind(), &table.CRDColumns{})
}

// cellsOf returns the cells of an object at a time, one for each column of p.
func cellsOf(p *table.Printer, u *unstructured.Unstructured, now time.Time) ([]any, error) {
	object, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("show %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return p.Cells(object, now)
}
