package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	kubectlget "k8s.io/kubectl/pkg/cmd/get"

	"github.com/tidings-io/tidings/cluster"
)

// resourceTable is the objects of one resource, of all clusters. objects are tables,
// except with --server-print=false.
type resourceTable struct {
	mapping *meta.RESTMapping
	objects []runtime.Object
}

// printTables prints what args name in clusters, in one table for each resource.
func (get *getter) printTables(reader *clusterReader, clusters []*cluster.Cluster, args []string) error {
	var tables []*resourceTable
	var errs []error
	namespaced := !get.g.allNamespaces
	for _, c := range clusters {
		infos, err := get.infos(reader.of(c), args, new(bool))
		errs = append(errs, get.failed(reader.ctx, c, err))
		for _, info := range infos {
			namespaced = namespaced && info.Namespaced()
			o := info.Object
			if get.serverPrint {
				t, err := get.tableOf(c, info.Mapping, o)
				if err != nil {
					errs = append(errs, get.failed(reader.ctx, c, err))
					continue
				}
				o = t
			}
			tables = get.join(tables, info.Mapping, o)
		}
	}
	written, err := get.writeTables(tables)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil || written || get.ignoreNotFound {
		return err
	}
	if namespaced {
		get.g.screen.notice("No resources found in " + get.g.namespaceOf(clusters[0]) + " namespace.")
	} else {
		get.g.screen.notice("No resources found")
	}
	return nil
}

// join adds an object to the table of its resource: of one cluster to the last table,
// because the order is that of the arguments; of several clusters to any.
func (get *getter) join(tables []*resourceTable, mapping *meta.RESTMapping, o runtime.Object) []*resourceTable {
	i := slices.IndexFunc(tables, func(t *resourceTable) bool { return t.mapping.Resource == mapping.Resource })
	if !get.many && i != len(tables)-1 {
		i = -1
	}
	if i < 0 {
		return append(tables, &resourceTable{mapping, []runtime.Object{o}})
	}
	t := tables[i]
	last, ok := t.objects[len(t.objects)-1].(*metav1.Table)
	if next, isTable := o.(*metav1.Table); ok && isTable && sameColumns(last, next) {
		last.Rows = append(last.Rows, next.Rows...)
	} else {
		t.objects = append(t.objects, o)
	}
	return tables
}

// sameColumns reports whether the rows of b fit the columns of a. A server may leave
// out the columns after the first page.
func sameColumns(a, b *metav1.Table) bool {
	return len(b.ColumnDefinitions) == 0 || slices.EqualFunc(a.ColumnDefinitions, b.ColumnDefinitions,
		func(a, b metav1.TableColumnDefinition) bool { return a.Name == b.Name && a.Priority == b.Priority })
}

// writeTables writes the tables and reports whether there is anything in them.
func (get *getter) writeTables(tables []*resourceTable) (written bool, err error) {
	withKind := slices.ContainsFunc(tables, func(t *resourceTable) bool {
		return t.mapping.GroupVersionKind != tables[0].mapping.GroupVersionKind
	})
	for _, t := range tables {
		withNamespace := get.g.allNamespaces && !get.many && t.mapping.Scope.Name() == meta.RESTScopeNameNamespace
		p, err := get.printer(t.mapping, nil, withNamespace, withKind)
		if err != nil {
			return written, err
		}
		var text bytes.Buffer
		w := printers.GetNewTabWriter(&text)
		for _, o := range t.objects {
			if err := p.PrintObj(o, w); err != nil {
				return written, err
			}
		}
		w.Flush()
		if text.Len() == 0 {
			continue
		}
		if written && !*get.flags.NoHeaders {
			fmt.Fprintln(get.out)
		}
		written = true
		if _, err := get.out.Write(text.Bytes()); err != nil {
			return written, err
		}
	}
	return written, nil
}

// tableOf returns the table that the server made, or ours if it makes none. If there
// are several clusters, it adds their column.
func (get *getter) tableOf(c *cluster.Cluster, mapping *meta.RESTMapping, o runtime.Object) (*metav1.Table, error) {
	t := decodeTable(o)
	if t == nil {
		var err error
		if t, err = makeTable(o, get.now()); err != nil {
			return nil, err
		}
	}
	if !get.many {
		return t, nil
	}
	withNamespace := get.g.allNamespaces && mapping.Scope.Name() == meta.RESTScopeNameNamespace
	columns := []metav1.TableColumnDefinition{{Name: "Cluster", Type: "string"}}
	if withNamespace {
		columns = append(columns, metav1.TableColumnDefinition{Name: "Namespace", Type: "string"})
	}
	if len(t.ColumnDefinitions) > 0 {
		t.ColumnDefinitions = append(columns, t.ColumnDefinitions...)
	}
	for i, row := range t.Rows {
		cells := []any{c.Name()}
		if withNamespace {
			namespace := ""
			if of, err := meta.Accessor(row.Object.Object); err == nil {
				namespace = of.GetNamespace()
			}
			cells = append(cells, namespace)
		}
		t.Rows[i].Cells = append(cells, row.Cells...)
	}
	return t, nil
}

// decodeTable returns a table of a server, nil if o is none.
func decodeTable(o runtime.Object) (t *metav1.Table) {
	decoder := kubectlget.TablePrinter{Delegate: printers.ResourcePrinterFunc(func(o runtime.Object, _ io.Writer) error {
		t, _ = o.(*metav1.Table)
		return nil
	})}
	_ = decoder.PrintObj(o, nil) // only decodes
	return t
}

// makeTable makes the table that an API server would make of an object at a time.
func makeTable(o runtime.Object, now time.Time) (*metav1.Table, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("the server's response is a %T, not a table or an object", o)
	}
	p := printerFor(u)
	cells, err := cellsOf(p, u, now)
	if err != nil {
		return nil, err
	}
	return &metav1.Table{ColumnDefinitions: p.Columns(), Rows: []metav1.TableRow{{Cells: cells, Object: runtime.RawExtension{Object: u}}}}, nil
}
