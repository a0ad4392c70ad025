// Package mutation finds out that somebody has modified what everybody shares.
//
// client-go's detector (tools/cache/mutation_detector.go) copies what comes into
// a store and compares for a few minutes. This one copies what a reader is given
// and compares for as long as anybody, the store or a reader, holds the object;
// it does not hold it itself.
package mutation

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
	"unsafe"
	"weak"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/diff"

	"github.com/tidings-io/tidings/internal/object"
)

// Error says that objects were modified. Diffs are by the objects' keys.
type Error struct {
	// Target is what the objects are of, and Suspect who had just been given
	// one of them, empty if nobody knows.
	Target, Suspect string
	// Objects are the keys of those found modified, and Diffs what was done to
	// each: lines with a minus were there, lines with a plus are there now.
	Objects []string
	Diffs   []string
}

// Error names the objects, who is suspected, and what has changed in the first
// of them.
func (e *Error) Error() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: somebody has modified objects that all readers share", e.Target)
	if e.Suspect != "" {
		fmt.Fprintf(&out, ", found when %s returned", e.Suspect)
	}
	out.WriteString("; make a DeepCopy first. ")
	for i, key := range e.Objects {
		if i == shown {
			fmt.Fprintf(&out, "And %d more, which may have had modified parts in common with these.\n", len(e.Objects)-i)
			break
		}
		fmt.Fprintf(&out, "%s:\n%s", key, e.Diffs[i])
	}
	return out.String()
}

// shown is the number of objects whose differences an error spells out.
const shown = 3

// Period is how often everything is looked at.
const Period = time.Second

// Detector watches objects of which readers are given a pointer. Objects that
// are not pointers, or cannot be copied, it does not watch.
type Detector[T object.Object] struct {
	target func() string
	report func(error)
	able   bool // T can be watched at all

	mu   sync.Mutex
	lent map[weak.Pointer[byte]]T // copies of what was lent, as it was
}

// New returns a detector that reports an [*Error] about objects of a target. If
// report is nil it panics where nobody recovers: the process ends.
func New[T object.Object](target func() string, report func(error)) *Detector[T] {
	if report == nil {
		report = func(err error) { go panic(err) }
	}
	t := reflect.TypeFor[T]()
	return &Detector[T]{
		target: target, report: report,
		able: t.Kind() == reflect.Pointer && t.Implements(reflect.TypeFor[runtime.Object]()),
		lent: map[weak.Pointer[byte]]T{},
	}
}

// address is what a T points at.
func address[T any](o *T) *byte { return *(**byte)(unsafe.Pointer(o)) }

// Lend notes how o is, if it was not lent before, and returns it.
func (d *Detector[T]) Lend(o T) T {
	if !d.able || address(&o) == nil {
		return o
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	at := weak.Make(address(&o))
	if _, known := d.lent[at]; !known {
		d.lent[at] = any(o).(runtime.Object).DeepCopyObject().(T)
	}
	return o
}

// Returned looks at objects that a suspect is done with.
func (d *Detector[T]) Returned(suspect string, objects ...T) {
	if !d.able {
		return
	}
	d.mu.Lock()
	found := Error{Suspect: suspect}
	for _, o := range objects {
		if at := address(&o); at != nil {
			d.compare(&found, weak.Make(at), o)
		}
	}
	d.mu.Unlock()
	d.tell(&found)
}

// Check looks at every object that was lent and still exists.
func (d *Detector[T]) Check() {
	d.mu.Lock()
	var found Error
	for at := range d.lent {
		p := at.Value()
		if p == nil {
			delete(d.lent, at)
			continue
		}
		d.compare(&found, at, *(*T)(unsafe.Pointer(&p)))
	}
	d.mu.Unlock()
	d.tell(&found)
}

// compare notes it in found if an object is not what it was. It is told of once.
func (d *Detector[T]) compare(found *Error, at weak.Pointer[byte], o T) {
	was, known := d.lent[at]
	if !known || reflect.DeepEqual(was, o) {
		return
	}
	// What cannot be seen is no modification: a resource.Quantity remembers its
	// text once it was asked for it.
	changes := diff.Diff(was, o)
	if changes == "" {
		return
	}
	d.lent[at] = any(o).(runtime.Object).DeepCopyObject().(T)
	found.Objects = append(found.Objects, object.Key(was.GetNamespace(), was.GetName()))
	found.Diffs = append(found.Diffs, changes)
}

func (d *Detector[T]) tell(found *Error) {
	if len(found.Objects) > 0 {
		found.Target = d.target()
		d.report(found)
	}
}

// Run checks every [Period] until stop is called, which waits for a last check.
func (d *Detector[T]) Run() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(Period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				d.Check()
			case <-end:
				d.Check()
				return
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
