package informer

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tidings-io/tidings/internal/indexer"
)

// Query says which objects to read. The zero value means all of them; what is
// given must all match.
type Query struct {
	// Namespace, if not empty, is the only one read, and the rest costs
	// nothing.
	Namespace string
	// Labels, if not nil, must match. Requirements of the form key=value or
	// key in (…) are looked up in an index on that label key, which is made
	// when an informer is first asked for it: the cost grows with the answer,
	// not with the store.
	Labels labels.Selector
	// By is a match of an index of the informer, see [Informer.AddIndex].
	By Match
	// After skips everything up to and including the object with this key (see
	// [Key]): the next page begins where the last one ended.
	After string
	// Limit, if not 0, is the number of objects to stop at.
	Limit int
}

// unbounded says that q asks for everything.
func (q Query) unbounded() bool {
	return q.Namespace == "" && q.After == "" && q.Limit == 0 && q.By.index == "" && (q.Labels == nil || q.Labels.Empty())
}

// Index finds objects by values that a function gives them.
type Index[T Object] struct {
	name string
	inf  *Informer[T]
}

// Match selects the objects that an [Index] has under a value. The zero value
// selects everything.
type Match struct{ index, value string }

// AddIndex adds an index over what the informer has and will have. values
// appends to its argument the values under which an object is to be found; it
// must be a pure function. Indexes can be added at any time; views pinned
// earlier do not have them. A name that is taken is an error.
func (inf *Informer[T]) AddIndex(name string, values func(values []string, obj T) []string) (*Index[T], error) {
	if err := inf.engine.addIndex("index "+name, values); err != nil {
		return nil, err
	}
	return &Index[T]{name: "index " + name, inf: inf}, nil
}

// Is matches the objects under value, to be used as Query.By.
func (in *Index[T]) Is(value string) Match { return Match{in.name, value} }

// Get returns the objects under value, ordered by namespace and name.
func (in *Index[T]) Get(value string) []T { return in.inf.List(Query{By: in.Is(value)}) }

// Values returns the values that there are objects under, in order.
func (in *Index[T]) Values() []string {
	v := in.inf.engine.pin()
	defer v.Release()
	return slices.Collect(v.IndexValues(in.name))
}

// Below this size a scan is as good as an index, and costs nothing to keep.
const smallStore = 256

// Label keys are taken from queries, which may come from anybody: only so many
// are indexed, the others scanned.
const maxLabelIndexes = 32

// labelIndexes are the label keys that have an index.
type labelIndexes struct {
	mu   sync.Mutex
	keys map[string]bool
}

func labelIndex(key string) string { return "label " + key }

// indexLabels makes the indexes that q would use.
func (inf *Informer[T]) indexLabels(q Query) {
	if q.Labels == nil || inf.engine.latest().objects < smallStore {
		return
	}
	requirements, _ := q.Labels.Requirements()
	for _, r := range requirements {
		if exact(r) {
			inf.indexLabel(r.Key())
		}
	}
}

func (inf *Informer[T]) indexLabel(key string) {
	inf.labels.mu.Lock()
	defer inf.labels.mu.Unlock()
	if inf.labels.keys[key] || len(inf.labels.keys) >= maxLabelIndexes {
		return
	}
	if inf.labels.keys == nil {
		inf.labels.keys = map[string]bool{}
	}
	inf.labels.keys[key] = true
	// The name cannot be taken: nobody else makes names like this one.
	_ = inf.engine.addLabelIndex(key)
}

// exact says that a requirement names the values it wants.
func exact(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return true
	}
	return false
}

// lookup is a way to an answer: the union of an index's values, of which rest
// has still to be asked.
type lookup struct {
	index  string
	values []string
	rest   labels.Selector // nil: nothing
}

// search yields the keys and objects of v that match q, in the order of keys.
func search[T Object](v *indexer.View[T], q Query) iter.Seq2[string, T] {
	prefix := ""
	if q.Namespace != "" {
		prefix = q.Namespace + "/"
	}
	best, found := shortest(v, q)
	everything := best.rest == nil || best.rest.Empty()
	return func(yield func(string, T) bool) {
		n := 0
		offer := func(key string, o T) bool {
			if !everything && !best.rest.Matches(labels.Set(o.GetLabels())) {
				return true
			}
			if found && q.By.index != "" && best.index != q.By.index && !under(v, q.By, key) {
				return true
			}
			n++
			return yield(key, o) && n != q.Limit
		}
		switch {
		case !found:
			v.From(prefix, q.After)(offer)
		case len(best.values) == 1:
			v.Indexed(best.index, best.values[0], prefix, q.After)(offer)
		default:
			// The values' own orders have to be merged into one.
			type item struct {
				key string
				o   T
			}
			var items []item
			for _, value := range best.values {
				for key, o := range v.Indexed(best.index, value, prefix, q.After) {
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
// would do in step, so that the count is never longer than the answer. If none
// was found, best says only that all of q's labels have still to be asked.
func shortest[T Object](v *indexer.View[T], q Query) (best lookup, found bool) {
	var ways []lookup
	if q.By.index != "" {
		ways = append(ways, lookup{q.By.index, []string{q.By.value}, q.Labels})
	}
	if q.Labels != nil {
		requirements, _ := q.Labels.Requirements()
		for i, r := range requirements {
			if exact(r) && v.HasIndex(labelIndex(r.Key())) {
				rest := labels.NewSelector().Add(slices.Delete(slices.Clone(requirements), i, i+1)...)
				ways = append(ways, lookup{labelIndex(r.Key()), r.ValuesUnsorted(), rest})
			}
		}
	}
	if len(ways) < 2 {
		if len(ways) == 1 {
			return ways[0], true
		}
		return lookup{rest: q.Labels}, false
	}
	for limit := 64; ; limit *= 8 {
		for _, way := range ways {
			n := 0
			for _, value := range way.values {
				n += v.IndexedCount(way.index, value, limit)
			}
			if n < limit {
				return way, true
			}
		}
	}
}
