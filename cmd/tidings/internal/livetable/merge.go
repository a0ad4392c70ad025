package livetable

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/informer"
)

// sampleEvery is how often the state of the watch upstream is asked for.
const sampleEvery = time.Second

// line is a row of a window, and the part that it is of.
type line struct {
	*row
	part int
}

// state is what a frame shows of the tables of a window.
type state struct {
	total, objects int
	counts         []Count
	lines          []line
	groups         *Groups // of a window with some that is synced
	parts          []partState
	synced         bool // all are
}

// partState is the state of one table.
type partState struct {
	objects  int
	version  string
	synced   bool
	upstream informer.Status
	past     *read.Past // nil: the table is of the present
}

// look returns the state of the tables of a window at one time, or why one has ended. The
// tables are locked in the order of the clusters' names, as by every other window. more, if not nil, is called
// with the state while they are.
func (w *Window) look(more func(*state)) (state, error) {
	for _, p := range w.parts {
		t := p.held.table
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.err != nil {
			return state{}, t.err
		}
	}
	s := state{synced: true}
	counts := map[string]int{}
	for _, p := range w.parts {
		t := p.held.table
		if now := time.Now(); t.source != nil && now.Sub(t.sampled) >= sampleEvery {
			t.sampled = now
			t.upstream = t.source.Engine().Status()
		}
		s.parts = append(s.parts, partState{len(t.rows), t.version, t.synced, t.upstream, t.past})
		s.objects += len(t.rows)
		s.total += p.order.tree.Len()
		s.synced = s.synced && t.synced
		for status, n := range p.order.counts {
			counts[status] += n
		}
	}
	s.counts = byStatus(counts)
	s.lines = w.merged(s.total)
	if more != nil {
		more(&s)
	}
	return s, nil
}

// merged returns the lines of the window: some of those of all its orders, sorted as each
// of them is. The tables are locked.
func (w *Window) merged(total int) []line {
	first, end := min(w.params.First, total), min(w.params.First+w.params.Count, total)
	at := w.seek(first)
	out := make([]line, 0, end-first)
	for range end - first {
		best, next := -1, item{}
		for i, p := range w.parts {
			if at[i] == p.order.tree.Len() {
				continue
			}
			if one, _ := p.order.tree.GetAt(at[i]); best < 0 || w.compare(one, i, next, best) < 0 {
				best, next = i, one
			}
		}
		at[best]++
		out = append(out, line{next.row, best})
	}
	return out
}

// seek returns how many items of each order are among the first n of all. It halves the
// orders in which the border may lie, by the rank that a middle item has in all of them.
func (w *Window) seek(n int) []int {
	low, high := make([]int, len(w.parts)), make([]int, len(w.parts))
	for i, p := range w.parts {
		high[i] = p.order.tree.Len()
	}
	if len(w.parts) == 1 {
		return []int{n}
	}
	for {
		widest, begun := -1, 0
		for i := range low {
			if begun += low[i]; high[i] > low[i] && (widest < 0 || high[i]-low[i] > high[widest]-low[widest]) {
				widest = i
			}
		}
		if begun == n || widest < 0 {
			return low
		}
		middle := (low[widest] + high[widest]) / 2
		pivot, _ := w.parts[widest].order.tree.GetAt(middle)
		rank, ranks := 0, make([]int, len(low))
		for i, p := range w.parts {
			ranks[i] = low[i] + search(high[i]-low[i], func(k int) bool {
				one, _ := p.order.tree.GetAt(low[i] + k)
				return w.compare(one, i, pivot, widest) >= 0
			})
			rank += ranks[i]
		}
		if rank < n { // the pivot is among the first n, too
			ranks[widest]++
			low = ranks
		} else {
			high = ranks
		}
	}
}

// search is sort.Search.
func search(n int, found func(int) bool) int {
	low := 0
	for low < n {
		if middle := (low + n) / 2; found(middle) {
			n = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// compare compares items of two parts.
func (w *Window) compare(a item, partA int, b item, partB int) int {
	byPart := cmp.Compare(partA, partB)
	if w.byCluster {
		if w.params.Descending {
			byPart = -byPart
		}
		return cmp.Or(byPart, w.parts[partA].order.compare(a, b))
	}
	return cmp.Or(w.parts[partA].order.compare(a, b), byPart)
}

// Part is what a window has of one cluster.
type Part struct {
	Cluster string
	// Held is its table, nil if there is none: Problem says why, or else the table is
	// waited for.
	Held    *Held
	Problem any // as JSON
	// Limits, if not nil, are the namespaces that the table is limited to, as JSON.
	Limits any
}

// Join opens a window of the tables of several clusters, sorted by the clusters' names.
// Their columns are joined by name, after one of the cluster.
func Join(clusters []Part, p Params) (*Window, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	w := &Window{params: p, begun: time.Now(), clusters: clusters}
	complete := true
	for i, c := range clusters {
		if c.Held == nil {
			complete = false
			continue
		}
		w.parts = append(w.parts, &part{held: c.Held, cluster: i})
	}
	columns := []Column{{Name: clusterColumn, Type: "string", Description: "the cluster that the object is in"}}
	for _, part := range w.parts {
		for _, c := range part.held.table.columns {
			if find(columns, c.Name) < 0 {
				columns = append(columns, c)
			}
		}
	}
	// Further columns are the last.
	slices.SortStableFunc(columns, func(a, b Column) int {
		return cmp.Compare(map[bool]int{true: 1}[a.further], map[bool]int{true: 1}[b.further])
	})
	if err := w.begin(columns, complete && len(w.parts) > 0); err != nil {
		return nil, err
	}
	return w, nil
}

// clusterColumn is the column with the name of the cluster.
const clusterColumn = "Cluster"

// Open opens a window of one table.
func (h *Held) Open(p Params) (*Window, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	w := &Window{params: p, begun: time.Now(), parts: []*part{{held: h}}}
	if err := w.begin(h.table.columns, true); err != nil {
		return nil, err
	}
	return w, nil
}

// noColumn is the error of a column that there is not.
func (w *Window) noColumn(param, name string, columns []Column) error {
	e := mirror.Invalidf("%s: %s have no column %.80q", param, w.parts[0].held.table.query.Resource(), name)
	for _, c := range columns {
		if !c.further {
			e.Exists = append(e.Exists, c.Name)
		}
	}
	return e
}
