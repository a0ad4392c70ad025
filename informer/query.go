package informer

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidings-io/tidings/internal/indexer"
)

// Query selects objects. The zero value selects all; an object must match every
// field that is set.
type Query struct {
	// Namespace, if not empty, selects one namespace. Other namespaces cost
	// nothing.
	Namespace string
	// Labels, if not nil, selects by labels. The informer keeps indexes on the 32
	// label keys that have been queried the most lately. It uses them for
	// requirements of the form key=value or key in (…): the cost then grows with
	// the result, not with the store.
	Labels labels.Selector
	// Owner, if not empty, selects the objects that name an owner with this uid in
	// their metadata. Without [IndexOwners], every object is looked at.
	Owner types.UID
	// By selects by an index of the informer, see [Informer.AddIndex].
	By Match
	// After skips all objects up to and including the one with this key (see
	// [Key]). Use the last key of a page to get the next one.
	After string
	// Limit, if not 0, is the maximum number of objects.
	Limit int
}

// Index finds objects by values that a function computes from them.
type Index[T Object] struct {
	name string
	inf  *Informer[T]
}

// Match selects the objects that an [Index] has under one value. The zero value
// selects all.
type Match struct{ index, value string }

// AddIndex adds an index over all present and future objects. index appends to
// values the values of obj; it must be a pure function. Indexes can be added at
// any time, but views pinned earlier do not have them. It is an error if the name
// is taken.
//
// A panic of index is logged and counted in [Status]. The index then does not have
// that object until the object changes. The store, its other indexes and all
// subscribers do have it.
func (inf *Informer[T]) AddIndex(name string, index func(values []string, obj T) []string) (*Index[T], error) {
	err := inf.store.AddIndex(indexPrefix+name, func(values []string, held Object) []string { return index(values, inf.store.expand(held)) })
	if errors.Is(err, indexer.ErrIndexExists) {
		err = fmt.Errorf("index %q exists already", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", inf.target(), err)
	}
	return &Index[T]{name: indexPrefix + name, inf: inf}, nil
}

// indexPrefix begins the names of the indexes that the caller has added.
const indexPrefix = "index "

// Is returns a match of the objects under value, for Query.By.
func (in *Index[T]) Is(value string) Match { return Match{in.name, value} }

// Get returns the objects under value, ordered by namespace and name.
func (in *Index[T]) Get(value string) []T { return in.inf.List(Query{By: in.Is(value)}) }

// Values returns all values of the objects in the store, in order.
func (in *Index[T]) Values() []string {
	v := in.inf.store.Pin()
	defer v.Release()
	return slices.Collect(v.IndexValues(in.name))
}

// prefix is the common prefix of the keys of all objects that can match.
func (q Query) prefix() string {
	if q.Namespace == "" {
		return ""
	}
	return q.Namespace + "/"
}

// exact reports whether a requirement lists the values that match.
func exact(r labels.Requirement) bool {
	switch r.Operator() {
	case selection.Equals, selection.DoubleEquals, selection.In:
		return true
	}
	return false
}
