package read

import (
	"hash/maphash"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
)

// selectorCache remembers what selectors have last read of objects. A change is shown to
// those of all watches at about the same time: a thousand kubelets ask of each pod
// on which node it is, and to read that takes expanding and parsing the pod.
type selectorCache [256]atomic.Pointer[look]

type look struct {
	object *Object
	field  string // empty: the labels
	labels labels.Set
	value  string
}

var lookSeed = maphash.MakeSeed()

// at is where to remember a look at an object. What was there is forgotten.
func (l *selectorCache) at(o *Object, field string) *atomic.Pointer[look] {
	return &l[maphash.Comparable(lookSeed, struct {
		o     *Object
		field string
	}{o, field})%uint64(len(l))]
}

// labels are an object's. They must not be modified.
func (l *selectorCache) labels(o *Object) labels.Set {
	at := l.at(o, "")
	if seen := at.Load(); seen != nil && seen.object == o && seen.field == "" {
		return seen.labels
	}
	seen := &look{object: o, labels: o.GetLabels()}
	at.Store(seen)
	return seen.labels
}

// field is what read says of an object.
func (l *selectorCache) field(o *Object, field string, read func(*Object) string) string {
	at := l.at(o, field)
	if seen := at.Load(); seen != nil && seen.object == o && seen.field == field {
		return seen.value
	}
	seen := &look{object: o, field: field, value: read(o)}
	at.Store(seen)
	return seen.value
}
