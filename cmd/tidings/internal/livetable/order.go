package livetable

import (
	"cmp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tidwall/btree"
)

// sorting says which rows of a table an order has, and how they are sorted.
type sorting struct {
	filter     string // of normalized terms, separated by spaces
	shown      string // the columns that the filter looks at, see columnSet
	cluster    string // if it is shown, the filter looks at it, too
	column     int    // byKey: by the key; missing: none has it
	descending bool
}

// order is the rows of a table that pass a filter, sorted. It is changed with the table.
type order struct {
	sorting
	terms  []term
	tree   *btree.BTreeG[item]
	counts map[string]int // rows by the text of the status column
	status int            // the status column; -1: there is none
	users  int
}

// item is a row with what it is sorted by.
type item struct {
	row  *row
	text string
	num  float64
	none bool // sorted after the others
}

// term is a word of a filter.
type term struct {
	text string // in lower case
	not  bool
}

// MaxFilter is the length of a filter in bytes.
const MaxFilter = 256

// normalize returns a filter with its terms in lower case, sorted and without repetitions.
func normalize(filter string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(strings.Fields(strings.ToLower(filter))))), " ")
}

// newOrder makes an order of rows. base, if not nil, is the same order without a filter.
func newOrder(by sorting, status int, rows map[string]*row, base *order) *order {
	o := &order{sorting: by, status: status, counts: map[string]int{}}
	for _, word := range strings.Fields(by.filter) {
		text, not := strings.CutPrefix(word, "!")
		if text != "" {
			o.terms = append(o.terms, term{text, not})
		}
	}
	o.tree = btree.NewBTreeGOptions(o.less, btree.Options{NoLocks: true})
	if base != nil {
		base.tree.Scan(func(i item) bool {
			if o.matches(i.row) {
				o.tree.Load(i)
				o.count(i.row, 1)
			}
			return true
		})
		return o
	}
	for _, i := range o.sorted(rows) {
		o.tree.Load(i.item)
		o.count(i.row, 1)
	}
	return o
}

// sortable is an item with a text whose bytes sort as the item does.
type sortable struct {
	item
	bytes string
}

// sorted returns the items of the rows that pass the filter, sorted, by all CPUs.
func (o *order) sorted(rows map[string]*row) []sortable {
	all := make([]*row, 0, len(rows))
	for _, r := range rows {
		all = append(all, r)
	}
	parts := make([][]sortable, max(1, min(runtime.GOMAXPROCS(0), len(all)/1024)))
	var running sync.WaitGroup
	for n := range parts {
		running.Go(func() {
			part := make([]sortable, 0, len(all)/len(parts)+1)
			for _, r := range all[n*len(all)/len(parts) : (n+1)*len(all)/len(parts)] {
				if o.matches(r) {
					i := o.item(r)
					part = append(part, sortable{i, sortBytes(i.text)})
				}
			}
			slices.SortFunc(part, o.compareSortable)
			parts[n] = part
		})
	}
	running.Wait()
	for len(parts) > 1 {
		parts = append(parts[2:], o.mergeSorted(parts[0], parts[1]))
	}
	return parts[0]
}

func (o *order) mergeSorted(a, b []sortable) []sortable {
	out := make([]sortable, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if o.compareSortable(a[0], b[0]) <= 0 {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return append(append(out, a...), b...)
}

// compareSortable is compare, without reading the numbers in texts each time.
func (o *order) compareSortable(a, b sortable) int {
	if a.none || b.none || o.column < 0 {
		return o.compare(a.item, b.item)
	}
	c := cmp.Or(strings.Compare(a.bytes, b.bytes), cmp.Compare(a.num, b.num))
	if o.descending {
		c = -c
	}
	return cmp.Or(c, strings.Compare(a.row.key, b.row.key))
}

// replace replaces a row by another. One of them may be nil.
func (o *order) replace(old, now *row) {
	if old != nil && o.matches(old) {
		o.tree.Delete(o.item(old))
		o.count(old, -1)
	}
	if now != nil && o.matches(now) {
		o.tree.Set(o.item(now))
		o.count(now, 1)
	}
}

func (o *order) count(r *row, by int) {
	if o.status < 0 {
		return
	}
	text := r.at(o.status).text
	if o.counts[text] += by; o.counts[text] == 0 {
		delete(o.counts, text)
	}
}

// matches reports whether a row passes the filter: each term is in one of its cells, or
// in none if it begins with an exclamation mark.
func (o *order) matches(r *row) bool {
	for _, t := range o.terms {
		if o.has(r, t.text) == t.not {
			return false
		}
	}
	return true
}

func (o *order) has(r *row, text string) bool {
	if o.cluster != "" && contains(o.cluster, text) {
		return true
	}
	for i, c := range r.cells {
		if o.shown[i] == '1' && (contains(c.text, text) || c.after != "" && contains(c.after, text)) {
			return true
		}
	}
	return false
}

// contains reports whether a text has another, which is in lower case, whatever the case
// of the text.
func contains(text, lowered string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return strings.Contains(strings.ToLower(text), lowered)
		}
	}
	for i := 0; i+len(lowered) <= len(text); i++ {
		n := 0
		for n < len(lowered) && lower(text[i+n]) == lowered[n] {
			n++
		}
		if n == len(lowered) {
			return true
		}
	}
	return false
}

func (o *order) item(r *row) item {
	i := item{row: r}
	if o.column < 0 {
		i.none = o.column == missing
		return i
	}
	switch c := r.at(o.column); c.kind {
	case null:
		i.none = true
	case str:
		i.text = c.text
	case raw:
		i.num = c.float()
	case elapsed:
		i.text, i.num = c.text, -float64(c.since) // the shortest time first
	}
	return i
}

func (o *order) less(a, b item) bool { return o.compare(a, b) < 0 }

func (o *order) compare(a, b item) int {
	c := 0
	switch {
	case a.none != b.none:
		if a.none {
			return 1
		}
		return -1
	case a.none:
		return strings.Compare(a.row.key, b.row.key)
	case o.column < 0:
		c = strings.Compare(a.row.key, b.row.key)
	default:
		c = cmp.Or(compareNatural(a.text, b.text), cmp.Compare(a.num, b.num))
	}
	if o.descending {
		c = -c
	}
	return cmp.Or(c, strings.Compare(a.row.key, b.row.key))
}

// Count is the number of rows with one status.
type Count struct {
	Status string `json:"status"`
	Rows   int    `json:"rows"`
}

// maxCounts is how many statuses are counted separately in a frame.
const maxCounts = 8

// byStatus returns the most frequent statuses. The rest are counted under "".
func byStatus(counts map[string]int) []Count {
	out := []Count{}
	for status, n := range counts {
		out = append(out, Count{status, n})
	}
	slices.SortFunc(out, func(a, b Count) int { return cmp.Or(b.Rows-a.Rows, strings.Compare(a.Status, b.Status)) })
	if len(out) > maxCounts {
		rest := Count{}
		for _, c := range out[maxCounts:] {
			rest.Rows += c.Rows
		}
		out = append(out[:maxCounts], rest)
	}
	return out
}
