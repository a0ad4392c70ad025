package livetable

import (
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/tidings-io/tidings/informer"
)

// frame is one message to a caller. What is left out is as in the frame before.
type frame struct {
	Columns         []Column                 `json:"columns,omitempty"`
	Total           *int                     `json:"total,omitempty"`
	Objects         *int                     `json:"objects,omitempty"`
	Counts          *[]Count                 `json:"counts,omitempty"`
	First           *int                     `json:"first,omitempty"`
	Keys            *[]string                `json:"keys,omitempty"`
	Groups          *Groups                  `json:"groups,omitempty"`
	Rows            map[string][]cell        `json:"rows,omitempty"`
	Cells           map[string]map[int]*cell `json:"cells,omitempty"`
	ResourceVersion string                   `json:"resourceVersion,omitempty"`
	Synced          bool                     `json:"synced"`
	Upstream        *upstream                `json:"upstream,omitempty"`
	Clusters        []clusterFrame           `json:"clusters,omitempty"`
	At              int64                    `json:"at,omitempty"` // the moment that was asked for, if it is a time
	Moment          any                      `json:"moment,omitempty"`
	Time            int64                    `json:"time"`
}

// upstream is the state of the mirror's watch.
type upstream struct {
	Phase   informer.Phase `json:"phase"`
	Since   int64          `json:"since"`   // when the phase began, in Unix milliseconds
	Contact int64          `json:"contact"` // when the cluster last sent something
}

// clusterFrame is what a frame says of one of several clusters. Without an upstream and a
// problem, the cluster is waited for.
type clusterFrame struct {
	Name            string    `json:"name"`
	Objects         int       `json:"objects"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Synced          bool      `json:"synced"`
	Upstream        *upstream `json:"upstream,omitempty"`
	Moment          any       `json:"moment,omitempty"`
	Visible         any       `json:"visible,omitempty"`
	Problem         any       `json:"problem,omitempty"`
}

// moment is what a frame says of the moment that a part shows.
func (w *Window) moment(i int, now state) any {
	if now.parts[i].past == nil {
		return nil
	}
	return w.parts[i].held.tables.opts.Moment(now.parts[i].past)
}

// upstreamOf returns nil for a table of the past.
func upstreamOf(s partState) *upstream {
	if s.upstream.Phase == "" {
		return nil
	}
	return &upstream{Phase: s.upstream.Phase, Since: milliseconds(s.upstream.Since), Contact: milliseconds(s.upstream.LastContact)}
}

// encode makes the frame of what is different from the state that was sent.
func (w *Window) encode(now state) ([]byte, error) {
	first := w.sentAt.IsZero()
	f := frame{Synced: now.synced, Time: milliseconds(time.Now())}
	if w.clusters == nil {
		f.ResourceVersion, f.Upstream, f.Moment = now.parts[0].version, upstreamOf(now.parts[0]), w.moment(0, now)
	} else if !slices.EqualFunc(now.parts, w.sent.parts, partState.same) || time.Since(w.statesAt) >= quiet {
		f.Clusters, w.statesAt = w.clusterFrames(now), time.Now()
	}
	if len(w.parts) > 0 {
		if at := w.parts[0].held.table.query.Params().At; at != nil {
			f.At = milliseconds(at.Time)
		}
	}
	if first {
		f.Columns, f.First = w.columns, &w.params.First
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
	sameKey := func(a, b line) bool { return a.key == b.key && a.part == b.part }
	if first || !slices.EqualFunc(now.lines, w.sent.lines, sameKey) {
		keys := make([]string, len(now.lines))
		for i, l := range now.lines {
			keys[i] = w.key(l)
		}
		f.Keys = &keys
	}
	f.Groups = now.groups
	f.Rows, f.Cells = w.changedRows(now)
	w.sent, w.sentAt = now, time.Now()
	return json.Marshal(f)
}

// changedRows returns the rows that are new to the window, and the cells of the others that
// are different.
func (w *Window) changedRows(now state) (rows map[string][]cell, cells map[string]map[int]*cell) {
	before := make(map[string]line, len(w.sent.lines))
	for _, l := range w.sent.lines {
		before[w.key(l)] = l
	}
	rows, cells = map[string][]cell{}, map[string]map[int]*cell{}
	for _, l := range now.lines {
		key := w.key(l)
		switch old, sent := before[key]; {
		case !sent:
			rows[key] = w.cells(l)
		case old != l:
			changed := map[int]*cell{}
			was := w.cells(old)
			for i, c := range w.cells(l) {
				if c != was[i] {
					changed[i] = &c
				}
			}
			if len(changed) > 0 {
				cells[key] = changed
			}
		}
	}
	return rows, cells
}

// clusterFrames returns what a frame says of each cluster.
func (w *Window) clusterFrames(now state) []clusterFrame {
	out := make([]clusterFrame, len(w.clusters))
	for i, c := range w.clusters {
		out[i] = clusterFrame{Name: c.Cluster, Problem: c.Problem, Visible: c.Limits}
	}
	for i, p := range w.parts {
		s := now.parts[i]
		at := &out[p.cluster]
		at.Objects, at.ResourceVersion, at.Synced, at.Upstream, at.Moment = s.objects, s.version, s.synced, upstreamOf(s), w.moment(i, now)
	}
	return out
}

// key names a row of a frame: namespace/name, or name; among several clusters after the
// escaped name of the cluster.
func (w *Window) key(l line) string {
	if w.clusters == nil {
		return l.row.key
	}
	return url.PathEscape(w.clusters[w.parts[l.part].cluster].Cluster) + "/" + l.row.key
}

// cells returns the shown cells of a row.
func (w *Window) cells(l line) []cell {
	p := w.parts[l.part]
	all := make([]cell, 0, len(p.held.table.columns))
	for _, c := range l.row.cells {
		all = append(all, c)
	}
	out := make([]cell, len(p.shown))
	for i, column := range p.shown {
		switch column {
		case missing:
		case cluster:
			out[i] = cell{kind: str, text: w.clusters[p.cluster].Cluster}
		default:
			out[i] = all[column]
		}
	}
	return out
}
