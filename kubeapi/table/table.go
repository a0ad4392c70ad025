package table

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Printer makes the rows of one kind. It may be used by any number of
// goroutines.
type Printer struct {
	columns     []metav1.TableColumnDefinition
	cells       func(*object) ([]any, error)
	completed   func(*object) []metav1.TableRowCondition // nil: no row has conditions
	orderedFrom int                                      // 0: a list stays in order; else the column that orders it
	standard    bool                                     // upstream has no printer of the kind's own
}

// NullIfEmpty says that the API server tells the rows of a table without any as
// null, and not as an empty list: it does for kinds that it has no printer for.
func (p *Printer) NullIfEmpty() bool { return p.standard }

// For returns the printer of a kind. crd is what the kind's
// CustomResourceDefinition says of columns, see [ColumnsOf]; nil if the kind has
// none. For kinds that are built in it makes no difference.
func For(gvk schema.GroupVersionKind, crd *CRDColumns) *Printer {
	if p := builtIn()[gvk.GroupKind()]; p != nil {
		return p
	}
	if crd != nil {
		return crd.printer()
	}
	return fallback
}

// Columns are the table's columns. Those of a priority above 0 are for wide
// tables only. The caller must not modify them.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return p.columns }

// Row reads the JSON of an object. It keeps nothing of json.
func (p *Printer) Row(json []byte) (*Row, error) {
	o, err := parse(json)
	if err != nil {
		return nil, err
	}
	r := &Row{}
	if r.cells, err = p.cells(o); err != nil {
		return nil, err
	}
	if p.completed != nil {
		r.conditions = p.completed(o)
	}
	return r, nil
}

// Cells reads the JSON of an object and returns its cells as they are at now.
func (p *Printer) Cells(json []byte, now time.Time) ([]any, error) {
	r, err := p.Row(json)
	if err != nil {
		return nil, err
	}
	return r.Cells(now), nil
}

// Compare says in which order the API server tells two rows of a list, where
// that is not the order of their names: flow schemas come in that of their
// precedence. For other kinds it is 0.
func (p *Printer) Compare(a, b *Row) int {
	if p.orderedFrom == 0 {
		return 0
	}
	x, _ := a.cells[p.orderedFrom].(int64)
	y, _ := b.cells[p.orderedFrom].(int64)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(fmt.Sprint(a.cells[0]), fmt.Sprint(b.cells[0])))
}

// Ordered says that the rows of a list come in an order of their own, that of
// [Printer.Compare].
func (p *Printer) Ordered() bool { return p.orderedFrom != 0 }

// Row is the row of one version of an object. It is never changed.
type Row struct {
	cells      []any // as in a Table, or an ago
	conditions []metav1.TableRowCondition
}

// Cells are the row's cells at a time: strings, int64s, float64s, bools and
// nils, one for each column. The slice is the caller's.
func (r *Row) Cells(now time.Time) []any {
	out := make([]any, len(r.cells))
	for i, c := range r.cells {
		if timed, ok := c.(ago); ok {
			c = timed.at(now)
		}
		out[i] = c
	}
	return out
}

// Size is the number of bytes that the row takes, by and large.
func (r *Row) Size() int {
	size := 24 * len(r.cells)
	for _, c := range r.cells {
		if text, ok := c.(string); ok {
			size += len(text)
		}
	}
	return size
}

// Conditions say of a pod that it has completed. The caller must not modify
// them.
func (r *Row) Conditions() []metav1.TableRowCondition { return r.conditions }

// kind declares a kind that is built in.
type kind struct {
	group, kind string
	columns     []column
	completed   func(*object) []metav1.TableRowCondition
	orderedFrom int
	standard    bool
}

// column is a column of a kind that is built in.
type column struct {
	metav1.TableColumnDefinition
	cell func(*object) any
}

func text(name, about string, cell func(*object) any) column {
	return column{metav1.TableColumnDefinition{Name: name, Type: "string", Description: about}, cell}
}

func integer(name, about string, cell func(*object) any) column {
	return column{metav1.TableColumnDefinition{Name: name, Type: "integer", Description: about}, cell}
}

func boolean(name, about string, cell func(*object) any) column {
	return column{metav1.TableColumnDefinition{Name: name, Type: "boolean", Description: about}, cell}
}

// wide makes a column one of wide tables.
func wide(c column) column {
	c.Priority = 1
	return c
}

// doc is what the documentation of an API type says of a field. Upstream's
// columns are described so.
func doc(of interface{ SwaggerDoc() map[string]string }, field string) string {
	return of.SwaggerDoc()[field]
}

func (k kind) printer() *Printer {
	p := &Printer{completed: k.completed, orderedFrom: k.orderedFrom, standard: k.standard}
	for _, c := range k.columns {
		if c.Name != "" { // a cell without a column, see IPAddress
			p.columns = append(p.columns, c.TableColumnDefinition)
		}
	}
	p.cells = func(o *object) ([]any, error) {
		cells := make([]any, len(k.columns))
		for i, c := range k.columns {
			cells[i] = c.cell(o)
		}
		return cells, nil
	}
	return p
}

// builtIn are the printers of the kinds of Kubernetes, made when first needed.
var builtIn = sync.OnceValue(func() map[schema.GroupKind]*Printer {
	out := map[schema.GroupKind]*Printer{}
	for _, some := range [][]kind{
		corePods(), coreKinds(), workloads(), volumes(), networks(), policies(), registrations(), resources(), plain(),
	} {
		for _, k := range some {
			out[schema.GroupKind{Group: k.group, Kind: k.kind}] = k.printer()
		}
	}
	return out
})

var (
	name = column{
		metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: doc(metav1.ObjectMeta{}, "name")},
		at("metadata.name"),
	}
	age = text("Age", doc(metav1.ObjectMeta{}, "creationTimestamp"), since("metadata.creationTimestamp"))
	// created is the moment and not the age.
	created = column{
		metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: doc(metav1.ObjectMeta{}, "creationTimestamp")},
		func(o *object) any { return moment(o.get("metadata.creationTimestamp")).UTC().Format(time.RFC3339) },
	}
	fallback = kind{columns: []column{name, created}, standard: true}.printer()
)

// plain are the kinds of which upstream too shows no more than of any other.
func plain() []kind {
	only := []column{name, created}
	return []kind{
		{group: "", kind: "LimitRange", columns: only, standard: true},
		{group: "rbac.authorization.k8s.io", kind: "Role", columns: only, standard: true},
		{group: "rbac.authorization.k8s.io", kind: "ClusterRole", columns: only, standard: true},
		{group: "storage.k8s.io", kind: "CSIStorageCapacity", columns: only, standard: true},
		{group: "apiextensions.k8s.io", kind: "CustomResourceDefinition", columns: only, standard: true},
	}
}
