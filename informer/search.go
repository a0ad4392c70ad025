package informer

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// plan is how to find the objects that match a query.
type plan struct {
	// index, if not empty, holds the candidates, under value or, if there are
	// several, under each of values. Otherwise all objects are candidates.
	index, value string
	values       []string
	// A candidate must match rest, if not nil, by its labels, and by.
	rest labels.Selector
	by   Match
	// owned says that a candidate must have the query's owner, byOwner that the index of
	// owners holds the candidates.
	owned, byOwner bool
}

// exact reports whether all candidates match and are in the order of keys.
func (p plan) exact() bool {
	return !p.owned && p.rest == nil && p.by.index == "" && len(p.values) == 0
}

// search yields the keys and objects of v that match q, in the order of keys.
func search(v *indexer.View[Object], q Query, p plan) iter.Seq2[string, Object] {
	return func(yield func(string, Object) bool) {
		n := 0
		offer := func(key string, o Object) bool {
			if p.owned && !hasOwner(o, q.Owner) { // also of the index: hashes may be equal
				return true
			}
			if p.rest != nil && !p.rest.Matches(labels.Set(o.GetLabels())) {
				return true
			}
			if p.by.index != "" && !indexed(v, p.by, key) {
				return true
			}
			n++
			return yield(key, o) && n != q.Limit
		}
		switch {
		case p.byOwner:
			v.Owned(object.OwnerHash(string(q.Owner)), q.prefix(), q.After)(offer)
		case p.index == "":
			v.From(q.prefix(), q.After)(offer)
		case len(p.values) == 0:
			v.Indexed(p.index, p.value, q.prefix(), q.After)(offer)
		default:
			// Each value's objects are in order; merge them.
			type item struct {
				key string
				o   Object
			}
			var items []item
			for _, value := range p.values {
				for key, o := range v.Indexed(p.index, value, q.prefix(), q.After) {
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

// indexed reports whether the index of m has the object with the given key under
// m's value.
func indexed(v *indexer.View[Object], m Match, key string) bool {
	for k := range v.Indexed(m.index, m.value, key, "") {
		return k == key
	}
	return false
}

// planFor chooses the index with the fewest candidates. It counts in all indexes
// to the same limit, and raises that step by step, so that counting never takes
// longer than the search.
func planFor(v *indexer.View[Object], q Query) plan {
	var requirements labels.Requirements
	if q.Labels != nil {
		requirements, _ = q.Labels.Requirements()
	}
	var scan plan
	if q.Labels != nil && !q.Labels.Empty() {
		scan.rest = q.Labels // not the requirements: labels.Nothing() has none
	}
	if q.Owner != "" { // which has few objects
		scan.by, scan.owned, scan.byOwner = q.By, true, v.HasOwners()
		return scan
	}
	var few [2]plan // no garbage for the usual queries
	plans := few[:0]
	if q.By.index != "" {
		plans = append(plans, plan{index: q.By.index, value: q.By.value, rest: scan.rest})
	}
	for i, r := range requirements {
		if !exact(r) {
			continue
		}
		index, found := v.IndexNamed(labelIndexPrefix, r.Key())
		if !found {
			continue
		}
		p := plan{index: index, by: q.By}
		var one bool
		if len(requirements) > 1 {
			p.rest = labels.NewSelector().Add(slices.Delete(slices.Clone(requirements), i, i+1)...)
		} else { // leaves no garbage
			p.value, one = q.Labels.RequiresExactMatch(r.Key())
		}
		if !one {
			p.values = r.ValuesUnsorted()
		}
		if len(p.values) == 1 {
			p.value, p.values = p.values[0], nil
		}
		plans = append(plans, p)
	}
	switch len(plans) {
	case 0:
		return scan
	case 1:
		return plans[0]
	}
	for limit := 64; ; limit *= 8 {
		for _, p := range plans {
			n := 0
			if len(p.values) == 0 {
				n = v.IndexedCount(p.index, p.value, limit)
			}
			for _, value := range p.values {
				n += v.IndexedCount(p.index, value, limit)
			}
			if n < limit {
				return p
			}
		}
	}
}
