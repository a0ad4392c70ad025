package livetable

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/tidings-io/tidings/internal/object"
)

const (
	// MaxGroup is the number of columns that rows can be grouped by.
	MaxGroup = 3
	// maxGroups is the number of groups in a frame, and maxDistinct of those that are told
	// apart at all.
	maxGroups   = 200
	maxDistinct = 50_000
)

// Groups are the numbers of rows that have the same values in some columns.
type Groups struct {
	// Largest are the largest groups.
	Largest []Group `json:"largest"`
	// Distinct is the number of groups, and Rest that of the rows of those that are not
	// among the largest.
	Distinct int `json:"distinct"`
	Rest     int `json:"rest"`
	// More says that there are more groups than can be told apart: their rows are in Rest.
	More bool `json:"more,omitempty"`
}

// Group is the number of rows that have the same values. A value is null if there is none.
type Group struct {
	Values []cell `json:"values"`
	Rows   int    `json:"rows"`
}

// catchUp is how long a complete frame waits for what the mirror has already.
const catchUp = 500 * time.Millisecond

// Complete waits until the table has all of its rows, and what the mirror has now, and
// returns a complete frame, as JSON, with the groups if the window has some. It is for
// windows of one table.
func (w *Window) Complete(ctx context.Context) ([]byte, error) {
	t := w.parts[0].held.table
	var mirrored uint64
	if t.source != nil {
		latest, _ := t.source.Internals().Latest()
		mirrored = object.Version(latest)
	}
	begun := time.Now()
	for {
		changed := w.changes()
		patience, complete := time.Hour, false
		now, err := w.look(func(s *state) {
			if s.synced {
				patience = catchUp - time.Since(begun)
				complete = object.Version(s.parts[0].version) >= mirrored || patience <= 0
			}
			if complete && w.params.Group != nil {
				s.groups = w.grouped(w.parts[0])
			}
		})
		switch {
		case err != nil:
			return nil, err
		case complete:
			return w.encode(now)
		}
		select {
		case t.hurry <- struct{}{}:
		default:
		}
		if err := w.sleep(ctx, patience, changed); err != nil {
			return nil, err
		}
	}
}

// grouped counts the rows of a part by the values of some columns. Its table is locked.
func (w *Window) grouped(p *part) *Groups {
	columns := make([]int, len(w.params.Group))
	for i, name := range w.params.Group {
		columns[i] = find(p.held.table.columns, name)
	}
	last := slices.Max(columns)
	counts := map[string]*Group{}
	out := &Groups{}
	values, key := make([]cell, len(columns)), []byte{}
	p.order.tree.Scan(func(i item) bool {
		clear(values)
		for at, c := range i.row.cells {
			if at > last {
				break
			}
			for n, column := range columns {
				if at == column {
					c.since, c.after = 0, ""
					if c.kind == elapsed { // what is before the time: the number of restarts
						c.kind, c.text = str, strings.TrimSuffix(c.text, " (")
					}
					values[n] = c
				}
			}
		}
		key = key[:0]
		for _, v := range values {
			key = append(append(append(key, byte(v.kind)), v.text...), 0)
		}
		g := counts[string(key)]
		switch {
		case g != nil:
			g.Rows++
		case len(counts) == maxDistinct:
			out.More = true
			out.Rest++
		default:
			counts[string(key)] = &Group{Values: slices.Clone(values), Rows: 1}
		}
		return true
	})
	out.Distinct = len(counts)
	for _, g := range counts {
		out.Largest = append(out.Largest, *g)
	}
	slices.SortFunc(out.Largest, func(a, b Group) int {
		return cmp.Or(b.Rows-a.Rows, slices.CompareFunc(a.Values, b.Values, func(a, b cell) int { return compareNatural(a.text, b.text) }))
	})
	if len(out.Largest) > maxGroups {
		for _, g := range out.Largest[maxGroups:] {
			out.Rest += g.Rows
		}
		out.Largest = out.Largest[:maxGroups]
	}
	if out.Largest == nil {
		out.Largest = []Group{}
	}
	return out
}
