// Package unexported reads unexported fields of client-go's informers and queues.
//
// client-go's generated code calls cache.New…, which cannot be replaced, and an
// informer has no methods that return what it was made with. The package depends
// on the layout of structs in another module, so it checks the name and the type
// of every field it reads. If one is not as expected, it returns an error and
// changes nothing.
package unexported

import (
	"errors"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// Config is what an informer was made with.
type Config struct {
	ListerWatcher cache.ListerWatcher
	Example       runtime.Object
	Options       cache.SharedIndexInformerOptions
	Transform     cache.TransformFunc                // nil for none
	ErrorHandler  cache.WatchErrorHandlerWithContext // nil for the default
}

// ErrInUse is returned for an informer that has been started or has handlers.
var ErrInUse = errors.New("the informer has been started or has handlers")

// ConfigOf returns the configuration of an informer of client-go's, or of one
// in client-go's typed wrapper.
func ConfigOf(informer cache.SharedIndexInformer) (Config, error) {
	v := reflect.ValueOf(informer)
	for {
		if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
			return Config{}, fmt.Errorf("%T is not an informer of client-go's", informer)
		}
		v = v.Elem()
		inner := v.FieldByName("SharedIndexInformer") // the field of the wrapper
		if !inner.IsValid() || inner.Kind() != reflect.Interface || inner.IsNil() {
			break
		}
		v = inner.Elem()
	}
	if t := v.Type(); t.PkgPath() != "k8s.io/client-go/tools/cache" || t.Name() != "sharedIndexInformer" {
		return Config{}, fmt.Errorf("%s is not an informer of client-go's", t)
	}
	r := fieldReader{of: v}
	c := Config{
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
		return Config{}, r.err
	}
	if started || processor.Elem().FieldByName("listeners").Len() > 0 {
		return Config{}, ErrInUse
	}
	return c, nil
}

// fieldReader reads the fields of a struct. err is the first error.
type fieldReader struct {
	of  reflect.Value
	err error
}

func field[T any](r *fieldReader, name string) T {
	var out T
	f := r.of.FieldByName(name)
	switch {
	case r.err != nil:
	case !f.IsValid():
		r.err = fmt.Errorf("client-go's informer has no field %s", name)
	case f.Type() != reflect.TypeFor[T]():
		r.err = fmt.Errorf("the field %s of client-go's informer is a %s", name, f.Type())
	default:
		// The field is addressable and of exactly this type. It is only read,
		// and nothing else uses the informer yet.
		out = *(*T)(unsafe.Pointer(f.UnsafeAddr()))
	}
	return out
}
