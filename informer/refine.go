package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/tidings-io/tidings/internal/source"
)

// Transform changes each object before anything is kept of it: drop here what
// nobody will read. The object is transform's own to change and return, or to
// replace. It is called once for each version of an object that arrives. An
// error makes the list or watch fail, visibly, and be tried again.
func Transform[T Object](transform func(T) (T, error)) Option {
	return func(o *options) error { o.transform = transform; return nil }
}

// Filter keeps only the objects that keep says yes to, after [Transform]. An
// object that changes so that the answer changes is told of as added or
// deleted. Prefer [WithLabels] and [WithFields] where they can say the same: the
// server then does not send the others at all.
func Filter[T Object](keep func(T) bool) Option {
	return func(o *options) error { o.filter = keep; return nil }
}

// refinements returns the options' transform and filter as those of T, nil
// where there is none.
func refinements[T Object](o *options) (transform func(T) (T, error), keep func(T) bool, err error) {
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

// filtered is a source of which only a part is kept.
type filtered[T Object] struct {
	source.Source[T]
	keep func(T) bool
}

// List implements source.Source.
func (f filtered[T]) List(ctx context.Context, opts source.ListOptions, each func(T) error) (source.ListResult, error) {
	return f.Source.List(ctx, opts, func(o T) error {
		if !f.keep(o) {
			return nil
		}
		return each(o)
	})
}

// Watch implements source.Source.
func (f filtered[T]) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[T]) error) error {
	return f.Source.Watch(ctx, opts, func(e source.Event[T]) error {
		if e.Type != source.Bookmark && !f.keep(e.Object) {
			e.Type = source.Deleted // of no effect if it was not kept before
		}
		return each(e)
	})
}

// Latest implements source.Dated. It fails if the source cannot say.
func (f filtered[T]) Latest(ctx context.Context) (string, error) {
	dated, ok := f.Source.(source.Dated)
	if !ok {
		return "", errors.ErrUnsupported
	}
	return dated.Latest(ctx)
}
