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
// it returns an error, the list or watch fails with it and is retried. A panic is
// such an error too, a [*PanicError], and is logged with its stack. Until a list
// succeeds, the store keeps its last state.
func Transform[T Object](transform func(T) (T, error)) Option {
	return func(o *options) error { o.transform = transform; return nil }
}

// Filter stores only the objects for which keep returns true, after [Transform].
// If a change of an object changes the result, subscribers receive it as Added or
// Deleted. Prefer [LabelSelector] and [FieldSelector] where they can express the
// same: the server then does not send the other objects at all. If keep panics, the
// list or watch fails with a [*PanicError] and is retried, as with [Transform].
func Filter[T Object](keep func(T) bool) Option {
	return func(o *options) error { o.filter = keep; return nil }
}

// transformAndFilter returns the transform and the filter of the options, nil if
// there is none. It is an error if they are not for T.
func transformAndFilter[T Object](o *options) (transform func(T) (T, error), keep func(T) bool, err error) {
	if o.transform != nil {
		f, ok := o.transform.(func(T) (T, error))
		if ok && f == nil {
			return nil, nil, errors.New("informer.Transform: the function is nil")
		}
		if !ok {
			return nil, nil, fmt.Errorf("informer.Transform: a %T does not fit an informer of %s", o.transform, reflect.TypeFor[T]())
		}
		transform = func(obj T) (out T, err error) {
			defer func() {
				if p := recover(); p != nil {
					err = o.panics.record("Transform", Key(obj), p, listFails)
				}
			}()
			key := Key(obj) // before f may change it
			out, err = f(obj)
			switch v := reflect.ValueOf(out); {
			case err != nil:
				err = fmt.Errorf("transform %s: %w", key, err)
			case v.Kind() == reflect.Pointer && v.IsNil():
				err = fmt.Errorf("the transform returned nil for %s without an error; to leave objects out, use a filter", key)
			}
			return out, err
		}
	}
	if o.filter != nil {
		f, ok := o.filter.(func(T) bool)
		if ok && f == nil {
			return nil, nil, errors.New("informer.Filter: the function is nil")
		}
		if !ok {
			return nil, nil, fmt.Errorf("informer.Filter: a %T does not fit an informer of %s", o.filter, reflect.TypeFor[T]())
		}
		keep = func(obj T) bool {
			defer func() {
				if p := recover(); p != nil {
					panic(o.panics.record("Filter", Key(obj), p, listFails)) // for filtered.kept
				}
			}()
			return f(obj)
		}
	}
	return transform, keep, nil
}

const listFails = "the list or watch fails and is retried"

// filtered is a source without the objects that keep rejects.
type filtered struct {
	source.Source[Object]
	keep   func(Object) bool // may panic with a *PanicError
	target func() source.Target
}

// kept calls keep for an object of a list or watch. If keep panics, the error is that
// of an object that cannot be decoded: a list follows.
func (f filtered) kept(held Object, verb string) (keep bool, err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case *PanicError:
			err = &source.Error{Target: f.target(), Verb: verb, Err: &source.DecodeError{Err: p}}
		default:
			panic(p)
		}
	}()
	return f.keep(held), nil
}

// List implements source.Source.
func (f filtered) List(ctx context.Context, opts source.ListOptions, each func(Object) error) (source.ListResult, error) {
	return f.Source.List(ctx, opts, func(o Object) error {
		keep, err := f.kept(o, "list")
		if !keep {
			return err
		}
		return each(o)
	})
}

// Watch implements source.Source.
func (f filtered) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[Object]) error) error {
	return f.Source.Watch(ctx, opts, func(e source.Event[Object]) error {
		if e.Type != source.Bookmark {
			keep, err := f.kept(e.Object, "watch")
			if err != nil {
				return err
			}
			if !keep {
				e.Type = source.Deleted // has no effect if the object is not in the store
			}
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

// Prepare implements source.Preparer.
func (f filtered) Prepare(ctx context.Context) (restored bool, err error) {
	if preparer, ok := f.Source.(source.Preparer); ok {
		return preparer.Prepare(ctx)
	}
	return false, nil
}
