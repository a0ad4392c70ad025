package read

import (
	"hash/maphash"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
)

// selectorCache caches the values that selectors have read from objects most recently.
// The selectors of all watches evaluate an event at about the same time: those of a
// thousand kubelets read the node of each pod, and to read it the pod is expanded and
// parsed.
type selectorCache [256]atomic.Pointer[cachedValue]

type cachedValue struct {
	object *Object
	field  string // empty: the labels
	labels labels.Set
	value  string
}

var hashSeed = maphash.MakeSeed()

// at is the entry for a field of an object. Other fields and objects share it.
func (l *selectorCache) at(o *Object, field string) *atomic.Pointer[cachedValue] {
	return &l[maphash.Comparable(hashSeed, struct {
		o     *Object
		field string
	}{o, field})%uint64(len(l))]
}

// labels returns the labels of an object. They must not be modified.
func (l *selectorCache) labels(o *Object) labels.Set {
	at := l.at(o, "")
	if seen := at.Load(); seen != nil && seen.object == o && seen.field == "" {
		return seen.labels
	}
	seen := &cachedValue{object: o, labels: o.GetLabels()}
	at.Store(seen)
	return seen.labels
}

// field returns the value of a field of an object, from the cache or from read.
func (l *selectorCache) field(o *Object, field string, read func(*Object) string) string {
	at := l.at(o, field)
	if seen := at.Load(); seen != nil && seen.object == o && seen.field == field {
		return seen.value
	}
	seen := &cachedValue{object: o, field: field, value: read(o)}
	at.Store(seen)
	return seen.value
}
