package livetable

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/broadcast"
)

// Params say which part of a table a window has.
type Params struct {
	// Columns are the names of the columns, and paths of fields. Nil means all but the
	// wide ones, and [AllColumns] all. Fields alone come after those.
	Columns []string
	// Filter is a list of words. A row passes if each of them is in one of its shown
	// cells, whatever the case; or in none, for a word that begins with "!".
	Filter string
	// Sort is the name of the column to sort by. Empty means namespace and name.
	Sort       string
	Descending bool
	// First is the index of the first row, and Count the number of rows.
	First, Count int
	// Group are the names of columns, and paths of fields, by whose values [Window.Complete]
	// counts the rows that pass the filter.
	Group []string
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
	case len(p.Group) > MaxGroup:
		return mirror.Invalidf("group: %d columns are named, and %d may be", len(p.Group), MaxGroup)
	case len(p.Filter) > MaxFilter:
		return mirror.Invalidf("filter: it has %d bytes, and %d at most", len(p.Filter), MaxFilter)
	}
	return nil
}

// usual reports whether the usual columns are shown.
func (p Params) usual() bool {
	return !slices.ContainsFunc(p.Columns, func(c string) bool { return !isField(c) })
}

// Window is a part of a table, or of the tables of several clusters. It is for one
// goroutine, and must be closed.
type Window struct {
	params    Params
	parts     []*part
	clusters  []Part   // nil: the window is of one table
	columns   []Column // the shown ones
	byCluster bool     // sorted by it
	changed   broadcast.Signal

	begun    time.Time
	looked   time.Time       // at the tables
	change   <-chan struct{} // closed by the next change after that; nil: not looked yet
	patience time.Duration   // how long to wait for it
	sentAt   time.Time
	sent     state
	statesAt time.Time // when the states of the clusters were sent
}

// part is one table of a window.
type part struct {
	held    *Held
	cluster int // the index in Window.clusters
	order   *order
	shown   []int // the table's index of each shown column, or one of those below
}

// The indexes of columns that a table does not have itself.
const (
	byKey   = -1 // for sorting: namespace and name
	missing = -2
	cluster = -3
)

const (
	// interval is the shortest time between two frames.
	interval = 100 * time.Millisecond
	// quiet is the same if only the resourceVersion is different.
	quiet = time.Second
	// Alive is the longest time between two frames.
	Alive = 5 * time.Second
)

// begin looks up the columns among those that there are, and takes the orders. strict says
// that there can be no others.
func (w *Window) begin(columns []Column, strict bool) error {
	p := w.params
	show := func(c Column) {
		if find(w.columns, c.Name) < 0 {
			w.columns = append(w.columns, c)
		}
	}
	for _, c := range columns {
		if !c.further && (p.usual() && !c.Wide || slices.Contains(p.Columns, AllColumns)) {
			show(c)
		}
	}
	for _, name := range p.Columns {
		switch i := find(columns, name); {
		case i >= 0:
			show(columns[i])
		case name == AllColumns:
		case strict:
			return w.noColumn("columns", name, columns)
		default:
			show(Column{Name: name, Type: "string"})
		}
	}
	if p.Sort != "" && find(columns, p.Sort) < 0 && strict {
		return w.noColumn("sort", p.Sort, columns)
	}
	for _, name := range p.Group {
		if find(columns, name) < 0 {
			return w.noColumn("group", name, columns)
		}
	}
	w.byCluster = w.clusters != nil && strings.EqualFold(p.Sort, clusterColumn)
	for _, part := range w.parts {
		if err := w.take(part); err != nil {
			w.Close()
			return err
		}
	}
	return nil
}

// take takes the order of a part.
func (w *Window) take(part *part) (err error) {
	t := part.held.table
	by := sorting{filter: normalize(w.params.Filter), column: byKey, descending: w.params.Descending}
	switch {
	case w.byCluster:
		by.descending = false
	case w.params.Sort != "":
		if by.column = find(t.columns, w.params.Sort); by.column < 0 {
			by.column = missing
		}
	}
	set := []byte(strings.Repeat("0", len(t.columns)))
	for _, c := range w.columns {
		i := find(t.columns, c.Name)
		switch {
		case w.clusters != nil && c.Name == clusterColumn:
			i, by.cluster = cluster, w.clusters[part.cluster].Cluster
		case i < 0:
			i = missing
		default:
			set[i] = '1'
		}
		part.shown = append(part.shown, i)
	}
	if by.shown = string(set); by.filter == "" { // without a filter the shown columns make no difference
		by.shown, by.cluster = "", ""
	}
	if part.order, err = t.order(by); err == nil && w.clusters != nil {
		t.join(&w.changed)
	}
	return err
}

// find finds a column by its name, whatever the case.
func find(columns []Column, name string) int {
	return slices.IndexFunc(columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
}

// Close ends the window. It does not release what is held.
func (w *Window) Close() {
	for _, p := range w.parts {
		if p.order != nil {
			p.held.table.leave(p.order)
			p.held.table.part(&w.changed)
			p.order = nil
		}
	}
}

// Next waits for the next frame and returns it as JSON. The first frame is complete. The
// error is that of the context, or why a table ended.
func (w *Window) Next(ctx context.Context) ([]byte, error) {
	for {
		if w.change != nil {
			if err := w.sleep(ctx, w.patience, w.change); err != nil {
				return nil, err
			}
			// Changes that come together are looked at together.
			pause := interval
			if w.sentAt.IsZero() { // somebody waits for it
				pause = interval / 10
			}
			if err := w.sleep(ctx, min(w.patience, pause)-time.Since(w.looked), nil); err != nil {
				return nil, err
			}
		}
		w.change = w.changes()
		now, err := w.look(nil)
		if err != nil {
			return nil, err
		}
		w.looked, w.patience = time.Now(), sampleEvery
		wait := w.wait(now)
		if wait <= 0 {
			return w.encode(now)
		}
		w.patience = min(wait, sampleEvery)
	}
}

func (w *Window) changes() <-chan struct{} {
	if w.clusters == nil {
		return w.parts[0].held.table.changed.Next()
	}
	return w.changed.Next()
}

// wait is how long a frame of a state has to wait.
func (w *Window) wait(now state) time.Duration {
	switch {
	case w.sentAt.IsZero() && (now.synced || w.settled(now)):
		return 0
	case w.sentAt.IsZero(): // few rows come at once, and a frame without them would be seen
		return interval - time.Since(w.begun)
	case !w.same(now):
		return 0 // it is an interval since the last look
	case !slices.EqualFunc(now.parts, w.sent.parts, partState.same):
		return quiet - time.Since(w.sentAt)
	}
	return Alive - time.Since(w.sentAt)
}

// settled reports whether the rows of a table that is being made are those that it will
// have: objects come in the order of their keys.
func (w *Window) settled(now state) bool {
	return len(w.parts) == 1 && len(now.lines) == w.params.Count && w.params.Sort == "" && !w.params.Descending
}

// sleep waits for a time, or until early is closed.
func (w *Window) sleep(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		var ended <-chan struct{} // several tables wake the window when one ends
		if w.clusters == nil {
			ended = w.parts[0].held.Done()
		}
		select {
		case <-early:
		case <-timer.C:
		case <-ctx.Done():
		case <-ended:
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, p := range w.parts {
		if err := p.held.Err(); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a state looks like the one that was sent.
func (w *Window) same(now state) bool {
	return now.total == w.sent.total && now.objects == w.sent.objects && now.synced == w.sent.synced &&
		slices.Equal(now.counts, w.sent.counts) && slices.Equal(now.lines, w.sent.lines)
}

// same reports whether nothing that is noticed soon is different.
func (s partState) same(o partState) bool {
	return s.version == o.version && s.synced == o.synced && s.upstream.Phase == o.upstream.Phase
}
