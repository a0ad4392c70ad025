package livetable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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
	tables *Tables
	key    tableKey
	owner  string // the caller that its memory counts against
	query  *read.Query
	ctx    context.Context
	cancel context.CancelCauseFunc
	users  int         // under Tables.mu
	expiry *time.Timer // ends the table when nobody has used it for a time; under Tables.mu

	// Set before headed is closed.
	headed  chan struct{}
	printer *table.Printer
	columns []Column
	status  int              // the status column; -1: there is none
	source  *mirror.Informer // which mirrors the objects

	changed broadcast.Signal

	mu       sync.Mutex
	rows     map[string]*row
	orders   map[sorting]*order
	version  string
	synced   bool
	err      error // why it ended
	size     int64 // of rows and orders
	charged  int64
	sampled  time.Time
	upstream informer.Status
}

// Column is a column of a table.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"` // as in a Table of the Kubernetes API
	Description string `json:"description,omitempty"`
	Wide        bool   `json:"wide,omitempty"` // shown only on request
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
	t.mu.Unlock()
	t.changed.Notify()
}

func (t *liveTable) follow() error {
	err := t.head()
	if err != nil {
		return err
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
	n := 0
	for e, err := range events {
		if err != nil {
			return err
		}
		if err := t.apply(e); err != nil {
			return err
		}
		if n++; n%256 == 0 || e.Type == read.Synced {
			if err := t.account(); err != nil {
				return err
			}
		}
		t.changed.Notify()
	}
	return nil
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

// apply applies an event to the rows and to all orders of them.
func (t *liveTable) apply(e read.Event) error {
	var key string
	var now *row
	if e.Object != nil {
		key = informer.Key(e.Object)
		if e.Type != read.Deleted {
			var err error
			e.Object.VisitJSON(func(content []byte) {
				now, err = newRow(t.printer, key, e.Object.GetNamespace(), t.withNamespace(), content)
			})
			if err != nil {
				return fmt.Errorf("make the row of %s of %s: %w", key, t.query, err)
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.ResourceVersion != "" {
		t.version = e.ResourceVersion
	}
	switch {
	case e.Type == read.Synced:
		t.synced = true
	case e.Object != nil:
		old := t.rows[key]
		if old != nil && now != nil && old.packed == now.packed {
			return nil
		}
		if old != nil {
			delete(t.rows, key)
			t.size -= old.size()
		}
		if now != nil {
			t.rows[key] = now
			t.size += now.size()
		}
		for _, o := range t.orders {
			o.replace(old, now)
		}
	}
	return nil
}

// account charges what the table takes to its owner. A table that takes too much ends
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
	if t.synced {
		return nil
	}
	return err
}

// order returns the order of a sorting, which must be given back with leave.
func (t *liveTable) order(by sorting) (*order, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return nil, t.err
	}
	o := t.orders[by]
	if o == nil {
		o = newOrder(by, t.status, t.rows)
		t.orders[by] = o
	}
	o.users++
	return o, nil
}

func (t *liveTable) leave(o *order) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if o.users--; o.users == 0 && t.orders[o.sorting] == o {
		delete(t.orders, o.sorting)
	}
}

// sampleEvery is how often the state of the watch upstream is asked for.
const sampleEvery = time.Second

// state is what a frame shows of a table.
type state struct {
	total, objects int
	counts         []Count
	rows           []*row
	version        string
	synced         bool
	upstream       informer.Status
}

func (t *liveTable) state(o *order, first, count int) (state, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return state{}, t.err
	}
	if now := time.Now(); now.Sub(t.sampled) >= sampleEvery {
		t.sampled = now
		t.upstream = t.source.Engine().Status()
	}
	return state{
		total: o.tree.Len(), objects: len(t.rows), counts: o.byStatus(), rows: o.rows(first, count),
		version: t.version, synced: t.synced, upstream: t.upstream,
	}, nil
}

// column finds a column by its name, whatever the case.
func (t *liveTable) column(name string) int {
	return slices.IndexFunc(t.columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
}

var errUnused = errors.New("nobody looks at the table")
