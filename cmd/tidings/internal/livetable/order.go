package livetable

import (
	"cmp"
	"slices"
	"strings"
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

// newOrder makes an order of rows. base, if not nil, is the same order without a filter,
// and keys the one of all rows by their keys.
func newOrder(by sorting, status int, rows map[string]*row, base, keys *order) *order {
	o := &order{sorting: by, status: status, counts: map[string]int{}}
	for _, word := range strings.Fields(by.filter) {
		text, not := strings.CutPrefix(word, "!")
		if text != "" {
			o.terms = append(o.terms, term{text, not})
		}
	}
	o.tree = btree.NewBTreeGOptions(o.less, btree.Options{NoLocks: true})
	for _, items := range o.arrange(rows, base, keys) {
		for _, i := range items {
			o.tree.Load(i)
			o.count(i.row, 1)
		}
	}
	return o
}

// replace replaces a row by another. One of them may be nil.
func (o *order) replace(old, now *row) {
	if old != nil && now != nil && o.matches(old) && o.matches(now) {
		before, after := o.item(old), o.item(now)
		if o.compare(before, after) != 0 {
			o.tree.Delete(before)
		}
		o.tree.Set(after)
		if was, is := o.statusOf(old), o.statusOf(now); was != is {
			o.add(was, -1)
			o.add(is, 1)
		}
		return
	}
	if old != nil && o.matches(old) {
		o.tree.Delete(o.item(old))
		o.count(old, -1)
	}
	if now != nil && o.matches(now) {
		o.tree.Set(o.item(now))
		o.count(now, 1)
	}
}

func (o *order) count(r *row, by int) { o.add(o.statusOf(r), by) }

// statusOf is the text of the status column.
func (o *order) statusOf(r *row) string {
	if o.status < 0 {
		return ""
	}
	return r.at(o.status).text
}

func (o *order) add(text string, by int) {
	if o.status < 0 {
		return
	}
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
	if lowered == "" {
		return true
	}
	for i := range len(text) {
		switch b := text[i]; {
		case b >= utf8.RuneSelf:
			return strings.Contains(strings.ToLower(text), lowered)
		case lower(b) == lowered[0] && begins(text[i:], lowered):
			return true
		}
	}
	return false
}

func begins(text, lowered string) bool {
	if len(text) < len(lowered) {
		return false
	}
	for i := range len(lowered) {
		if lower(text[i]) != lowered[i] {
			return false
		}
	}
	return true
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
