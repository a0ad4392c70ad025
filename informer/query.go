package informer

import (
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
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
	mu   sync.Mutex // held by whoever adds one
	keys atomic.Pointer[[]string]
}

// have reports whether a key has an index, and how many have.
func (l *labelIndexes) have(key string) (indexed bool, n int) {
	keys := l.keys.Load()
	if keys == nil {
		return false, 0
	}
	return slices.Contains(*keys, key), len(*keys)
}

// labelled is what the names of indexes of labels begin with.
const labelled = "label "

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
	if indexed, n := inf.labels.have(key); indexed || n >= maxLabelIndexes {
		return
	}
	inf.labels.mu.Lock()
	defer inf.labels.mu.Unlock()
	indexed, n := inf.labels.have(key)
	if indexed || n >= maxLabelIndexes {
		return
	}
	// The name cannot be taken: nobody else makes names like this one.
	_ = inf.engine.addLabelIndex(key)
	keys := []string{key}
	if n > 0 {
		keys = append(keys, *inf.labels.keys.Load()...)
	}
	inf.labels.keys.Store(&keys)
}

// prefix is that of the keys of all that is read.
func (q Query) prefix() string {
	if q.Namespace == "" {
		return ""
	}
	return q.Namespace + "/"
}

// exact says that a requirement names the values it wants.
func exact(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return true
	}
	return false
}
