package livetable

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
)

// Params say which part of a table a window has.
type Params struct {
	// Columns are the names of the columns. Nil means all but the wide ones, and
	// [AllColumns] all.
	Columns []string
	// Filter is a list of words. A row passes if each of them is in one of its shown
	// cells, whatever the case; or in none, for a word that begins with "!".
	Filter string
	// Sort is the name of the column to sort by. Empty means namespace and name.
	Sort       string
	Descending bool
	// First is the index of the first row, and Count the number of rows.
	First, Count int
}

// AllColumns in [Params.Columns] stands for all columns.
const AllColumns = "*"

// MaxRows is the number of rows that a window may have.
const MaxRows = 500

func (p Params) check() error {
	switch {
	case p.Count < 1 || p.Count > MaxRows:
		return mirror.Invalidf("count: a window has 1 to %d rows, not %d", MaxRows, p.Count)
	case p.First < 0:
		return mirror.Invalidf("first: %d is negative", p.First)
	case len(p.Filter) > MaxFilter:
		return mirror.Invalidf("filter: it has %d bytes, and %d at most", len(p.Filter), MaxFilter)
	}
	return nil
}

// Window is a part of a live table. It is for one goroutine, and must be closed.
type Window struct {
	tables *Tables
	table  *liveTable
	caller string
	order  *order
	params Params
	shown  []int // the columns

	begun  time.Time
	looked time.Time // at the table
	sentAt time.Time
	sent   state
}

const (
	// interval is the shortest time between two frames.
	interval = 100 * time.Millisecond
	// quiet is the same if only the resourceVersion is different.
	quiet = time.Second
	// Alive is the longest time between two frames.
	Alive = 5 * time.Second
)

// begin looks up the columns and takes the order.
func (w *Window) begin(p Params) (err error) {
	w.params, w.begun = p, time.Now()
	by := sorting{filter: normalize(p.Filter), column: -1, descending: p.Descending}
	if p.Sort != "" {
		if by.column = w.table.column(p.Sort); by.column < 0 {
			return w.noColumn("sort", p.Sort)
		}
	}
	for i, c := range w.table.columns {
		if p.Columns == nil && !c.Wide || slices.Contains(p.Columns, AllColumns) {
			w.shown = append(w.shown, i)
		}
	}
	for _, name := range p.Columns {
		if i := w.table.column(name); i >= 0 && !slices.Contains(w.shown, i) {
			w.shown = append(w.shown, i)
		} else if i < 0 && name != AllColumns {
			return w.noColumn("columns", name)
		}
	}
	if by.filter != "" { // without a filter the shown columns make no difference
		set := []byte(strings.Repeat("0", len(w.table.columns)))
		for _, i := range w.shown {
			set[i] = '1'
		}
		by.shown = string(set)
	}
	w.order, err = w.table.order(by)
	return err
}

func (w *Window) noColumn(param, name string) error {
	e := mirror.Invalidf("%s: %s have no column %.80q", param, w.table.query.Resource(), name)
	for _, c := range w.table.columns {
		e.Exists = append(e.Exists, c.Name)
	}
	return e
}

// Close ends the window.
func (w *Window) Close() {
	if w.order != nil {
		w.table.leave(w.order)
	}
	w.tables.leave(w.table, w.caller)
}

// frame is one message to a caller. What is left out is as in the frame before.
type frame struct {
	Columns         []Column                 `json:"columns,omitempty"`
	Total           *int                     `json:"total,omitempty"`
	Objects         *int                     `json:"objects,omitempty"`
	Counts          *[]Count                 `json:"counts,omitempty"`
	First           *int                     `json:"first,omitempty"`
	Keys            *[]string                `json:"keys,omitempty"`
	Rows            map[string][]cell        `json:"rows,omitempty"`
	Cells           map[string]map[int]*cell `json:"cells,omitempty"`
	ResourceVersion string                   `json:"resourceVersion,omitempty"`
	Synced          bool                     `json:"synced"`
	Upstream        upstream                 `json:"upstream"`
	Time            int64                    `json:"time"`
}

// upstream is the state of the mirror's watch.
type upstream struct {
	Phase   informer.Phase `json:"phase"`
	Since   int64          `json:"since"`   // when the phase began, in Unix milliseconds
	Contact int64          `json:"contact"` // when the cluster last sent something
}

// Next waits for the next frame and returns it as JSON. The first frame is complete. The
// error is that of the context, or why the table ended.
func (w *Window) Next(ctx context.Context) ([]byte, error) {
	// Changes that come together are looked at together.
	if err := w.sleep(ctx, interval-time.Since(w.looked), nil); err != nil {
		return nil, err
	}
	for {
		changed := w.table.changed.Next()
		now, err := w.table.state(w.order, w.params.First, w.params.Count)
		if err != nil {
			return nil, err
		}
		w.looked = time.Now()
		wait := w.wait(now)
		if wait <= 0 {
			return w.encode(now)
		}
		if err := w.sleep(ctx, min(wait, sampleEvery), changed); err != nil {
			return nil, err
		}
		if err := w.sleep(ctx, min(wait, interval)-time.Since(w.looked), nil); err != nil {
			return nil, err
		}
	}
}

// wait is how long a frame of a state has to wait.
func (w *Window) wait(now state) time.Duration {
	switch {
	case w.sentAt.IsZero() && now.synced:
		return 0
	case w.sentAt.IsZero(): // few rows come at once, and a frame without them would be seen
		return interval - time.Since(w.begun)
	case !w.same(now):
		return 0 // it is an interval since the last look
	case now.version != w.sent.version || now.upstream.Phase != w.sent.upstream.Phase:
		return quiet - time.Since(w.sentAt)
	}
	return Alive - time.Since(w.sentAt)
}

// sleep waits for a time, or until early is closed.
func (w *Window) sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-early:
		case <-timer.C:
		case <-ctx.Done():
		case <-w.table.ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if w.table.ctx.Err() != nil {
		return context.Cause(w.table.ctx)
	}
	return nil
}

// same reports whether a state looks like the one that was sent.
func (w *Window) same(now state) bool {
	return now.total == w.sent.total && now.objects == w.sent.objects && now.synced == w.sent.synced &&
		slices.Equal(now.counts, w.sent.counts) && slices.Equal(now.rows, w.sent.rows)
}

// encode makes the frame of what is different from the state that was sent.
func (w *Window) encode(now state) ([]byte, error) {
	first := w.sentAt.IsZero()
	f := frame{ResourceVersion: now.version, Synced: now.synced, Time: milliseconds(time.Now()), Upstream: upstream{
		Phase: now.upstream.Phase, Since: milliseconds(now.upstream.Since), Contact: milliseconds(now.upstream.LastContact),
	}}
	if first {
		for _, i := range w.shown {
			f.Columns = append(f.Columns, w.table.columns[i])
		}
		f.First = &w.params.First
	}
	if first || now.total != w.sent.total {
		f.Total = &now.total
	}
	if first || now.objects != w.sent.objects {
		f.Objects = &now.objects
	}
	if first || !slices.Equal(now.counts, w.sent.counts) {
		f.Counts = &now.counts
	}
	byKey := func(a, b *row) bool { return a.key == b.key }
	if first || !slices.EqualFunc(now.rows, w.sent.rows, byKey) {
		keys := make([]string, len(now.rows))
		for i, r := range now.rows {
			keys[i] = r.key
		}
		f.Keys = &keys
	}
	before := make(map[string]*row, len(w.sent.rows))
	for _, r := range w.sent.rows {
		before[r.key] = r
	}
	for _, r := range now.rows {
		switch old := before[r.key]; old {
		case r:
		case nil:
			if f.Rows == nil {
				f.Rows = map[string][]cell{}
			}
			f.Rows[r.key] = w.cells(r)
		default:
			changed := map[int]*cell{}
			was := w.cells(old)
			for i, c := range w.cells(r) {
				if c != was[i] {
					changed[i] = &c
				}
			}
			if len(changed) == 0 {
				continue
			}
			if f.Cells == nil {
				f.Cells = map[string]map[int]*cell{}
			}
			f.Cells[r.key] = changed
		}
	}
	w.sent, w.sentAt = now, time.Now()
	return json.Marshal(f)
}

// cells returns the shown cells of a row.
func (w *Window) cells(r *row) []cell {
	all := make([]cell, 0, len(w.table.columns))
	for _, c := range r.cells {
		all = append(all, c)
	}
	out := make([]cell, len(w.shown))
	for i, column := range w.shown {
		out[i] = all[column]
	}
	return out
}
