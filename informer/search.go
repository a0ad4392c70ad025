package informer

import (
	"iter"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/internal/indexer"
)

// way leads to the answer of a query.
type way struct {
	// index, if not empty, has the objects to be looked at, under value or, if there
	// are several, under any of values.
	index, value string
	values       []string
	// What has still to be asked of each object: rest, if not nil, of its labels,
	// and whether an index has it.
	rest labels.Selector
	by   Match
}

// straight says that everything on the way belongs to the answer, and is in order.
func (w way) straight() bool {
	return w.rest == nil && w.by.index == "" && len(w.values) == 0
}

// collect appends to dst the objects of v that match q, in the order of keys.
func collect[T Object](v *indexer.View[T], dst []T, q Query) []T {
	w := shortest(v, q)
	if !w.straight() || q.Limit != 0 {
		return sift(v, dst, q, w)
	}
	if dst == nil && q.Namespace == "" && q.After == "" {
		n := v.Len()
		if w.index != "" { // to count is little beside making the answer grow
			n = v.IndexedCount(w.index, w.value, math.MaxInt)
		}
		dst = make([]T, 0, n)
	}
	if w.index == "" {
		return v.Append(dst, q.prefix(), q.After)
	}
	return v.AppendIndexed(dst, w.index, w.value, q.prefix(), q.After)
}

// sift appends what is found along a way where not everything is.
func sift[T Object](v *indexer.View[T], dst []T, q Query, w way) []T {
	for _, o := range search(v, q, w) {
		dst = append(dst, o)
	}
	return dst
}

// search yields the keys and objects of v that match q, in the order of keys.
func search[T Object](v *indexer.View[T], q Query, w way) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		n := 0
		offer := func(key string, o T) bool {
			if w.rest != nil && !w.rest.Matches(labels.Set(o.GetLabels())) {
				return true
			}
			if w.by.index != "" && !under(v, w.by, key) {
				return true
			}
			n++
			return yield(key, o) && n != q.Limit
		}
		switch {
		case w.index == "":
			v.From(q.prefix(), q.After)(offer)
		case len(w.values) == 0:
			v.Indexed(w.index, w.value, q.prefix(), q.After)(offer)
		default:
			// The values' own orders have to be merged into one.
			type item struct {
				key string
				o   T
			}
			var items []item
			for _, value := range w.values {
				for key, o := range v.Indexed(w.index, value, q.prefix(), q.After) {
					items = append(items, item{key, o})
				}
			}
			slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
			for _, i := range items {
				if !offer(i.key, i.o) {
					return
				}
			}
		}
	}
}

// under reports whether an index has the object with the given key under the
// matched value.
func under[T Object](v *indexer.View[T], m Match, key string) bool {
	for k := range v.Indexed(m.index, m.value, key, "") {
		return k == key
	}
	return false
}

// shortest finds the index that leads to the fewest objects. It counts all that
// would do in step, so that the count is never longer than the answer.
func shortest[T Object](v *indexer.View[T], q Query) way {
	var requirements labels.Requirements
	if q.Labels != nil {
		requirements, _ = q.Labels.Requirements()
	}
	var plain way
	if q.Labels != nil && !q.Labels.Empty() {
		plain.rest = q.Labels // of which nothing, for one, has no requirements
	}
	var few [2]way
	ways := few[:0]
	if q.By.index != "" {
		ways = append(ways, way{index: q.By.index, value: q.By.value, rest: plain.rest})
	}
	for i, r := range requirements {
		if !exact(r) {
			continue
		}
		index, found := v.IndexNamed(labelled, r.Key())
		if !found {
			continue
		}
		w := way{index: index, by: q.By}
		var one bool
		if len(requirements) > 1 {
			w.rest = labels.NewSelector().Add(slices.Delete(slices.Clone(requirements), i, i+1)...)
		} else { // leaves no garbage
			w.value, one = q.Labels.RequiresExactMatch(r.Key())
		}
		if !one {
			w.values = r.ValuesUnsorted()
		}
		if len(w.values) == 1 {
			w.value, w.values = w.values[0], nil
		}
		ways = append(ways, w)
	}
	switch len(ways) {
	case 0:
		return plain
	case 1:
		return ways[0]
	}
	for limit := 64; ; limit *= 8 {
		for _, w := range ways {
			n := 0
			if len(w.values) == 0 {
				n = v.IndexedCount(w.index, w.value, limit)
			}
			for _, value := range w.values {
				n += v.IndexedCount(w.index, value, limit)
			}
			if n < limit {
				return w
			}
		}
	}
}
