package informer

import (
	"slices"

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
	// key in (…) are looked up in an index on that label key, if it is one of
	// the 32 keys that an informer has been asked for the most lately: the cost
	// grows with the answer, not with the store. An index is made when the
	// informer is asked for a key, and gives way to one that is asked for more.
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
