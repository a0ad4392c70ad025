package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/tidings-io/tidings/internal/source"
)

// Transform changes each object before it is stored, for example to drop fields
// that nobody reads. transform may modify the object and return it, or return
// another one. It is called once for each version of an object that arrives. If
// it returns an error, the list or watch fails with it and is retried.
func Transform[T Object](transform func(T) (T, error)) Option {
	return func(o *options) error { o.transform = transform; return nil }
}

// Filter stores only the objects for which keep returns true, after [Transform].
// If a change of an object changes the result, subscribers receive it as Added or
// Deleted. Prefer [LabelSelector] and [FieldSelector] where they can express the
// same: the server then does not send the other objects at all.
func Filter[T Object](keep func(T) bool) Option {
	return func(o *options) error { o.filter = keep; return nil }
}

// transformAndFilter returns the transform and the filter of the options, nil if
// there is none. It is an error if they are not for T.
func transformAndFilter[T Object](o *options) (transform func(T) (T, error), keep func(T) bool, err error) {
	if o.transform != nil {
		f, ok := o.transform.(func(T) (T, error))
		if !ok {
			return nil, nil, fmt.Errorf("informer.Transform: a %T does not fit an informer of %s", o.transform, reflect.TypeFor[T]())
		}
		transform = func(obj T) (T, error) {
			out, err := f(obj)
			if err != nil {
				err = fmt.Errorf("transform %s: %w", Key(obj), err)
			}
			return out, err
		}
	}
	if o.filter != nil {
		f, ok := o.filter.(func(T) bool)
		if !ok {
			return nil, nil, fmt.Errorf("informer.Filter: a %T does not fit an informer of %s", o.filter, reflect.TypeFor[T]())
		}
		keep = f
	}
	return transform, keep, nil
}

// filtered is a source without the objects that keep rejects.
type filtered struct {
	source.Source[Object]
	keep func(Object) bool
}

// List implements source.Source.
func (f filtered) List(ctx context.Context, opts source.ListOptions, each func(Object) error) (source.ListResult, error) {
	return f.Source.List(ctx, opts, func(o Object) error {
		if !f.keep(o) {
			return nil
		}
		return each(o)
	})
}

// Watch implements source.Source.
func (f filtered) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[Object]) error) error {
	return f.Source.Watch(ctx, opts, func(e source.Event[Object]) error {
		if e.Type != source.Bookmark && !f.keep(e.Object) {
			e.Type = source.Deleted // has no effect if the object is not in the store
		}
		return each(e)
	})
}

// Latest implements source.Versioner. It fails if the source cannot say.
func (f filtered) Latest(ctx context.Context) (string, error) {
	versioner, ok := f.Source.(source.Versioner)
	if !ok {
		return "", errors.ErrUnsupported
	}
	return versioner.Latest(ctx)
}
