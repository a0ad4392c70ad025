package livetable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/table"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/broadcast"
)

// liveTable is the rows of one query, kept up to date for as long as it has users.
type liveTable struct {
	tables  *Tables
	key     tableKey
	owner   string // the caller that its memory counts against
	query   *read.Query
	further []string // paths of fields
	ctx     context.Context
	cancel  context.CancelCauseFunc
	users   int         // under Tables.mu
	expiry  *time.Timer // ends the table when nobody has used it for a time; under Tables.mu

	// Set before headed is closed.
	headed  chan struct{}
	printer *table.Printer
	paths   []fieldPath // of the further columns
	columns []Column
	status  int              // the status column; -1: there is none
	source  *mirror.Informer // which mirrors the objects

	changed broadcast.Signal // wakes windows of this table alone
	hurry   chan struct{}    // somebody waits for what the mirror has

	mu       sync.Mutex
	rows     map[string]*row
	orders   map[sorting]*order
	spare    []*order // those without users, the oldest first
	version  string
	synced   bool
	err      error // why it ended
	size     int64 // of rows and orders
	taken    int   // events since the size was charged; of the goroutine that fills it
	charged  int64
	sampled  time.Time
	upstream informer.Status
	past     *read.Past                     // the moment that it shows; nil: the present
	joint    map[*broadcast.Signal]struct{} // those of windows of several tables
}

// notify wakes all windows of the table. t.mu is not held.
func (t *liveTable) notify() {
	t.changed.Notify()
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := range t.joint {
		s.Notify()
	}
}

// Column is a column of a table.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // as in a Table of the Kubernetes API
	Description string `json:"description,omitempty"`
	Wide        bool   `json:"wide,omitempty"` // shown only on request

	further bool // the values of a field
}

// statusColumns are the columns by which rows are counted, the first that there is.
var statusColumns = []string{"Status", "Phase", "State", "Type"}

// run follows the query until the table's context ends.
func (t *liveTable) run() {
	err := t.follow()
	if err == nil {
		err = context.Cause(t.ctx)
	}
	t.tables.forget(t)
	t.cancel(err)
	t.mu.Lock()
	t.err = err
	t.tables.charge(t.owner, -t.charged)
	t.rows, t.charged = nil, 0
	clear(t.orders)
	t.spare = nil
	t.mu.Unlock()
	t.notify()
}

func (t *liveTable) follow() error {
	err := t.head()
	if err != nil {
		return err
	}
	if t.query.Params().At != nil {
		return t.fillPast()
	}
	events, err := t.tables.reader.Watch(t.ctx, t.query, "")
	if err != nil {
		return err
	}
	p := t.query.Params()
	if t.source, err = p.Cluster.Ready(t.ctx, t.query.Resource(), p.Namespace); err != nil {
		return err
	}
	close(t.headed)
	return t.fill(events)
}

// head finds the columns.
func (t *liveTable) head() error {
	gvk := t.query.Resource().GVK()
	var custom *table.CRDColumns
	if !table.BuiltIn(gvk) {
		if definition := t.query.Definition(t.ctx); definition != nil {
			custom, _ = table.ColumnsOf(definition, gvk.Version) // without columns: the default
		}
	}
	t.printer = table.For(gvk, custom)
	if t.withNamespace() {
		t.columns = append(t.columns, Column{Name: "Namespace", Type: "string"})
	}
	for _, c := range t.printer.Columns() {
		t.columns = append(t.columns, Column{Name: c.Name, Type: c.Type, Description: c.Description, Wide: c.Priority > 0})
	}
	for _, path := range t.further {
		f, _ := parseField(path) // it has been parsed before
		t.paths = append(t.paths, f)
		t.columns = append(t.columns, Column{Name: path, Type: "string", Description: "the field " + path, further: true})
	}
	t.status = -1
	for _, name := range statusColumns {
		if t.status = slices.IndexFunc(t.columns, func(c Column) bool { return c.Name == name }); t.status >= 0 {
			break
		}
	}
	return context.Cause(t.ctx)
}

// withNamespace reports whether the rows may be of several namespaces.
func (t *liveTable) withNamespace() bool {
	return t.query.Resource().Namespaced && t.query.Params().Namespace == ""
}

// account charges what the table takes to its owner. A table that takes too much must end
// while it is filled; later only the cluster makes it grow.
func (t *liveTable) account() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	size := t.size
	for _, o := range t.orders {
		size += int64(o.tree.Len()) * itemOverhead
	}
	err := t.tables.charge(t.owner, size-t.charged)
	t.charged = size
	return err
}

// maxSpare is how many orders of a table are kept up to date without a window, besides that
// of the keys, from which others are made.
const maxSpare = 2

var ofKeys = sorting{column: byKey}

// order returns the order of a sorting, which must be given back with leave.
func (t *liveTable) order(by sorting) (*order, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return nil, t.err
	}
	o := t.orders[by]
	if o == nil {
		unfiltered := by
		unfiltered.filter, unfiltered.shown, unfiltered.cluster = "", "", ""
		o = newOrder(by, t.status, t.rows, t.orders[unfiltered], t.orders[ofKeys])
		t.orders[by] = o
	}
	t.spare = slices.DeleteFunc(t.spare, func(s *order) bool { return s == o })
	o.users++
	return o, nil
}

func (t *liveTable) leave(o *order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.users--; o.users > 0 || t.orders[o.sorting] != o || o.sorting == ofKeys {
		return
	}
	// The next filter begins with the order that it is of, and some go back to the one before.
	if t.spare = append(t.spare, o); len(t.spare) > maxSpare {
		delete(t.orders, t.spare[0].sorting)
		t.spare = t.spare[1:]
	}
}

// join wakes a window of several tables when this one changes, until part is called.
func (t *liveTable) join(s *broadcast.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.joint == nil {
		t.joint = map[*broadcast.Signal]struct{}{}
	}
	t.joint[s] = struct{}{}
}

// part is the opposite of join.
func (t *liveTable) part(s *broadcast.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.joint, s)
}

var errUnused = errors.New("nobody looks at the table")
