// Package mutation detects modifications of objects that all readers share.
//
// client-go's detector (tools/cache/mutation_detector.go) copies each object that
// enters a store and compares it for a few minutes. This one copies an object when
// it is given to a reader, and compares it for as long as the store or a reader
// holds it. It does not hold the object itself.
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

// Error reports that objects were modified.
type Error struct {
	// Target describes what the objects belong to. Suspect is the reader that had
	// just returned one of them; it is empty if that is not known.
	Target, Suspect string
	// Objects are the keys of the modified objects. Diffs are their differences:
	// lines with a minus were removed, lines with a plus were added.
	Objects []string
	Diffs   []string
}

// Error describes the objects, the suspect, and the differences of the first few
// objects.
func (e *Error) Error() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s: objects that all readers share were modified", e.Target)
	if e.Suspect != "" {
		fmt.Fprintf(&out, ", found when %s returned", e.Suspect)
	}
	out.WriteString("; modify a DeepCopy instead. ")
	for i, key := range e.Objects {
		if i == shown {
			fmt.Fprintf(&out, "And %d more, which may share the modified parts with these.\n", len(e.Objects)-i)
			break
		}
		fmt.Fprintf(&out, "%s:\n%s", key, e.Diffs[i])
	}
	return out.String()
}

// shown is the number of objects whose differences an error message contains.
const shown = 3

// Period is the time between two checks of all objects.
const Period = time.Second

// Detector watches objects that readers get a pointer to. It ignores objects that
// are not pointers or have no DeepCopyObject method.
type Detector[T object.Object] struct {
	target func() string
	report func(error)
	able   bool // T can be watched

	mu   sync.Mutex
	lent map[weak.Pointer[byte]]T // copies of the objects as they were lent
}

// New returns a detector that calls report with an [*Error] for modified objects of
// target. If report is nil, the detector panics in a goroutine of its own, which
// ends the process.
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

// address returns the address that a T points at.
func address[T any](o *T) *byte { return *(**byte)(unsafe.Pointer(o)) }

// Lend copies o, if it was not lent before, and returns o.
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

// Returned checks objects that a reader is done with.
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
	d.reportFound(&found)
}

// Check checks every object that was lent and still exists.
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
	d.reportFound(&found)
}

// compare adds an object to found if it was modified. Each modification is reported
// once.
func (d *Detector[T]) compare(found *Error, at weak.Pointer[byte], o T) {
	was, known := d.lent[at]
	if !known || reflect.DeepEqual(was, o) {
		return
	}
	// A difference that no reader can see is not a modification: a
	// resource.Quantity caches its text, for example.
	changes := diff.Diff(was, o)
	if changes == "" {
		return
	}
	d.lent[at] = any(o).(runtime.Object).DeepCopyObject().(T)
	found.Objects = append(found.Objects, object.Key(was.GetNamespace(), was.GetName()))
	found.Diffs = append(found.Diffs, changes)
}

func (d *Detector[T]) reportFound(found *Error) {
	if len(found.Objects) > 0 {
		found.Target = d.target()
		d.report(found)
	}
}

// Run starts a check every [Period]. stop ends it and waits for a last check.
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
