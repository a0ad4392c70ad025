// Package adopt finds out what an informer of client-go's was made of.
//
// client-go's generated informers make theirs by calling cache.New…, which
// nobody can replace, and the informer does not give back what it was given. So
// this package reads its fields. It is tied to the layout of a struct in another
// module and checks every name and type of it; where one is not as expected, it
// returns an error and touches nothing.
package adopt

import (
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Parts are what an informer is made of.
type Parts struct {
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object
	Options       cache.SharedIndexInformerOptions
	Transform     cache.TransformFunc                // nil: none
	ErrorHandler  cache.WatchErrorHandlerWithContext // nil: the default
}

// ErrInUse is why an informer cannot be taken apart that runs or has handlers.
var ErrInUse = errors.New("the informer has been started or has handlers")

// Of takes an informer of client-go's apart, one behind its typed wrapper too.
func Of(informer cache.SharedIndexInformer) (Parts, error) {
	v := reflect.ValueOf(informer)
	for {
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			return Parts{}, fmt.Errorf("%T is not an informer of client-go's", informer)
		}
		v = v.Elem()
		inner := v.FieldByName("SharedIndexInformer") // of the wrapper
		if !inner.IsValid() || inner.Kind() != reflect.Interface || inner.IsNil() {
			break
		}
		v = inner.Elem()
	}
	if t := v.Type(); t.PkgPath() != "k8s.io/client-go/tools/cache" || t.Name() != "sharedIndexInformer" {
		return Parts{}, fmt.Errorf("%s is not an informer of client-go's", t)
	}
	r := reader{of: v}
	p := Parts{
		ListerWatcher: field[cache.ListerWatcher](&r, "listerWatcher"),
		Example:       field[runtime.Object](&r, "objectType"),
		Options: cache.SharedIndexInformerOptions{
			ResyncPeriod:            field[time.Duration](&r, "defaultEventHandlerResyncPeriod"),
			ObjectDescription:       field[string](&r, "objectDescription"),
			Identifier:              field[cache.InformerNameAndResource](&r, "identifier"),
			InformerMetricsProvider: field[cache.InformerMetricsProvider](&r, "informerMetricsProvider"),
			Indexers:                informer.GetIndexer().GetIndexers(),
		},
		Transform:    field[cache.TransformFunc](&r, "transform"),
		ErrorHandler: field[cache.WatchErrorHandlerWithContext](&r, "watchErrorHandler"),
	}
	started := field[bool](&r, "started")
	processor := v.FieldByName("processor")
	if r.err == nil && (processor.Kind() != reflect.Pointer || !processor.Elem().FieldByName("listeners").IsValid()) {
		r.err = errors.New("client-go's informer has no field processor.listeners")
	}
	if r.err != nil {
		return Parts{}, r.err
	}
	if started || processor.Elem().FieldByName("listeners").Len() > 0 {
		return Parts{}, ErrInUse
	}
	return p, nil
}

// reader reads the fields of a struct and remembers the first that was not
// there.
type reader struct {
	of  reflect.Value
	err error
}

func field[T any](r *reader, name string) T {
	var out T
	f := r.of.FieldByName(name)
	switch {
	case r.err != nil:
	case !f.IsValid():
		r.err = fmt.Errorf("client-go's informer has no field %s", name)
	case f.Type() != reflect.TypeFor[T]():
		r.err = fmt.Errorf("the field %s of client-go's informer is a %s", name, f.Type())
	default:
		// The field is addressable, of this very type, and nobody else has the
		// informer yet: reading it is all that is done.
		out = *(*T)(unsafe.Pointer(f.UnsafeAddr()))
	}
	return out
}
