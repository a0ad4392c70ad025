package livetable

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// arrange returns the items of an order, sorted, in parts. See newOrder. All CPUs work on it:
// somebody waits.
func (o *order) arrange(rows map[string]*row, base, keys *order) [][]item {
	if base != nil { // they are sorted already
		all := make([]item, 0, base.tree.Len())
		base.tree.Scan(func(i item) bool { all = append(all, i); return true })
		parts := shares(all)
		inParallel(len(parts), func(n int) {
			parts[n] = slices.DeleteFunc(parts[n], func(i item) bool { return !o.matches(i.row) })
		})
		return parts
	}
	all := make([]*row, 0, len(rows))
	if keys != nil {
		keys.tree.Scan(func(i item) bool { all = append(all, i.row); return true })
	} else {
		for _, r := range rows {
			all = append(all, r)
		}
		all = sorted(all, func(a, b *row) int { return strings.Compare(a.key, b.key) })
	}
	parts := shares(all)
	groups := make([]*grouped, len(parts))
	inParallel(len(parts), func(n int) { groups[n] = o.group(parts[n]) })
	return [][]item{o.place(groups)}
}

// grouped is rows in the order of their keys, and the groups of those that sort alike.
// There are few groups in most columns, so they are sorted, and not the rows.
type grouped struct {
	items  []item
	groups []int // of each item, the index in values
	values []value
}

// value is what the items of a group are sorted by.
type value struct {
	bytes string // compare as the texts do
	num   float64
	none  bool
	part  int
	group int
}

// group groups those of the rows that pass the filter.
func (o *order) group(rows []*row) *grouped {
	g := &grouped{items: make([]item, 0, len(rows)), groups: make([]int, 0, len(rows))}
	type what struct {
		text string
		num  float64
		none bool
	}
	known := map[what]int{}
	for _, r := range rows {
		if !o.matches(r) {
			continue
		}
		i := o.item(r)
		w := what{i.text, i.num, i.none}
		at, found := known[w]
		if !found {
			at = len(g.values)
			known[w] = at
			g.values = append(g.values, value{bytes: sortBytes(i.text), num: i.num, none: i.none, group: at})
		}
		g.items, g.groups = append(g.items, i), append(g.groups, at)
	}
	return g
}

// place sorts the groups of all parts, and puts each item after those of its group that
// have come before.
func (o *order) place(parts []*grouped) []item {
	var values []value
	ranks, total := make([][]int, len(parts)), 0
	for n, g := range parts {
		for _, v := range g.values {
			v.part = n
			values = append(values, v)
		}
		ranks[n], total = make([]int, len(g.values)), total+len(g.items)
	}
	values = sorted(values, o.compareValues)
	rank := 0
	for i, v := range values {
		if i > 0 && o.compareValues(values[i-1], v) != 0 {
			rank++
		}
		ranks[v.part][v.group] = rank
	}
	next := make([]int, rank+2) // of each rank, where its next item is
	for n, g := range parts {
		for _, at := range g.groups {
			next[ranks[n][at]+1]++
		}
	}
	for r := range rank {
		next[r+1] += next[r]
	}
	out := make([]item, total)
	for n, g := range parts {
		for i, at := range g.groups {
			r := ranks[n][at]
			out[next[r]] = g.items[i]
			next[r]++
		}
	}
	if o.column == byKey && o.descending {
		slices.Reverse(out)
	}
	return out
}

// compareValues compares groups as compare does their items.
func (o *order) compareValues(a, b value) int {
	switch {
	case a.none && b.none:
		return 0
	case a.none:
		return 1
	case b.none:
		return -1
	}
	c := cmp.Or(strings.Compare(a.bytes, b.bytes), cmp.Compare(a.num, b.num))
	if o.descending {
		c = -c
	}
	return c
}

// shares divides a list among all CPUs, unless it is short.
func shares[T any](all []T) [][]T {
	parts := make([][]T, max(1, min(runtime.GOMAXPROCS(0), len(all)/1024)))
	for n := range parts {
		parts[n] = all[n*len(all)/len(parts) : (n+1)*len(all)/len(parts)]
	}
	return parts
}

func inParallel(n int, do func(int)) {
	var running sync.WaitGroup
	for i := range n - 1 {
		running.Go(func() { do(i) })
	}
	do(n - 1)
	running.Wait()
}

// sorted sorts a list, of which it may use the memory.
func sorted[T any](all []T, compare func(a, b T) int) []T {
	parts := shares(all)
	inParallel(len(parts), func(n int) { slices.SortFunc(parts[n], compare) })
	for len(parts) > 1 {
		a, b := parts[0], parts[1]
		out := make([]T, 0, len(a)+len(b))
		for len(a) > 0 && len(b) > 0 {
			if compare(a[0], b[0]) <= 0 {
				out, a = append(out, a[0]), a[1:]
			} else {
				out, b = append(out, b[0]), b[1:]
			}
		}
		parts = append(parts[2:], append(append(out, a...), b...))
	}
	return parts[0]
}
