package table

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Printer makes the rows of one kind. It is safe for concurrent use.
type Printer struct {
	columns     []metav1.TableColumnDefinition
	cells       func(*object) ([]any, error)
	completed   func(*object) []metav1.TableRowCondition // nil: no row has conditions
	orderedFrom int                                      // the column by which lists are ordered; 0: none
	standard    bool                                     // upstream has no printer for the kind
}

// NullIfEmpty reports whether the API server encodes a table without rows with null rows
// and not an empty list. It does for kinds without a printer.
func (p *Printer) NullIfEmpty() bool { return p.standard }

// For returns the printer of a kind. crd has the columns of the kind's
// CustomResourceDefinition, see [ColumnsOf], nil if it has none. It is ignored for built-in
// kinds.
func For(gvk schema.GroupVersionKind, crd *CRDColumns) *Printer {
	if p := builtIn()[gvk.GroupKind()]; p != nil {
		return p
	}
	if crd != nil {
		return crd.printer()
	}
	return fallback
}

// BuiltIn reports whether [For] has a printer of its own for a kind.
func BuiltIn(gvk schema.GroupVersionKind) bool { return builtIn()[gvk.GroupKind()] != nil }

// Columns returns the columns of the table. Those with a priority above 0 are for wide
// tables only. The caller must not modify them.
func (p *Printer) Columns() []metav1.TableColumnDefinition { return p.columns }

// Row makes the row of an object from its JSON, which it does not retain.
func (p *Printer) Row(json []byte) (*Row, error) {
	o, err := parse(json)
	if err != nil {
		return nil, err
	}
	defer o.release()
	r := &Row{}
	if r.cells, err = p.cells(o); err != nil {
		return nil, err
	}
	if p.completed != nil {
		r.conditions = p.completed(o)
	}
	return r, nil
}

// Cells returns the cells of an object at a time, given its JSON.
func (p *Printer) Cells(json []byte, now time.Time) ([]any, error) {
	r, err := p.Row(json)
	if err != nil {
		return nil, err
	}
	return r.Cells(now), nil
}

// Compare compares two rows by the API server's order of a list, where that is not the
// order of names: flow schemas are ordered by precedence. For other kinds it returns 0.
func (p *Printer) Compare(a, b *Row) int {
	if p.orderedFrom == 0 {
		return 0
	}
	x, _ := a.cells[p.orderedFrom].(int64)
	y, _ := b.cells[p.orderedFrom].(int64)
	return cmp.Or(cmp.Compare(x, y), cmp.Compare(fmt.Sprint(a.cells[0]), fmt.Sprint(b.cells[0])))
}

// Ordered reports whether the rows of a list are ordered by [Printer.Compare].
func (p *Printer) Ordered() bool { return p.orderedFrom != 0 }

// Row is the row of one version of an object. It is immutable.
type Row struct {
	cells      []any // as in a Table, or an ago
	conditions []metav1.TableRowCondition
}

// Cells returns the cells of the row at a time: strings, int64s, float64s, bools and nils,
// one for each column. The caller owns the slice.
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

// Elapsed is a cell with the time since an event, between two strings.
type Elapsed struct {
	Since         time.Time
	Before, After string
}

// Values returns the cells of the row as [Row.Cells] does, but with an [Elapsed] for each
// that changes with time. They are the same for as long as the object is.
func (r *Row) Values() []any {
	out := make([]any, len(r.cells))
	for i, c := range r.cells {
		if timed, ok := c.(ago); ok {
			if c = (Elapsed{timed.when, timed.before, timed.after}); timed.when.IsZero() {
				c = timed.at(time.Time{})
			}
		}
		out[i] = c
	}
	return out
}

// Size is the approximate size of the row in bytes.
func (r *Row) Size() int {
	size := 24 * len(r.cells)
	for _, c := range r.cells {
		if text, ok := c.(string); ok {
			size += len(text)
		}
	}
	return size
}

// Conditions returns the row's conditions: those of a completed pod. The caller must not
// modify them.
func (r *Row) Conditions() []metav1.TableRowCondition { return r.conditions }

// kind describes the table of a built-in kind.
type kind struct {
	group, kind string
	columns     []column
	completed   func(*object) []metav1.TableRowCondition
	orderedFrom int
	standard    bool
}

// column is a column of a built-in kind.
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

// wide limits a column to wide tables.
func wide(c column) column {
	c.Priority = 1
	return c
}

// doc returns the documentation of a field of an API type, which describes the column
// upstream.
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

// builtIn returns the printers of the built-in kinds, which are made at the first call.
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
	// created is the time of creation, not the age.
	created = column{
		metav1.TableColumnDefinition{Name: "Created At", Type: "date", Description: doc(metav1.ObjectMeta{}, "creationTimestamp")},
		func(o *object) any { return timeOf(o.get("metadata.creationTimestamp")).UTC().Format(time.RFC3339) },
	}
	fallback = kind{columns: []column{name, created}, standard: true}.printer()
)

// plain are built-in kinds for which upstream has no printer.
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
