package informer

import (
	"context"
	"fmt"
	"reflect"

	"github.com/tidings-io/tidings/internal/source"
)

// Transform changes each object before anything is kept of it: drop here what
// nobody will read. The object is transform's own to change and return, or to
// replace. It is called once for each object that arrives. An error makes the
// list or watch fail, visibly, and be tried again.
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

// refined is a source behind a transform and a filter.
type refined[T Object] struct {
	source.Source[T]
	transform func(T) (T, error)
	keep      func(T) bool
}

// refine puts the options' transform and filter before a source.
func refine[T Object](src source.Source[T], o *options) (source.Source[T], error) {
	if o.transform == nil && o.filter == nil {
		return src, nil
	}
	r := refined[T]{Source: src, transform: func(obj T) (T, error) { return obj, nil }, keep: func(T) bool { return true }}
	if o.transform != nil {
		f, ok := o.transform.(func(T) (T, error))
		if !ok {
			return nil, fmt.Errorf("informer.Transform: a %T does not fit an informer of %s", o.transform, reflect.TypeFor[T]())
		}
		r.transform = f
	}
	if o.filter != nil {
		f, ok := o.filter.(func(T) bool)
		if !ok {
			return nil, fmt.Errorf("informer.Filter: a %T does not fit an informer of %s", o.filter, reflect.TypeFor[T]())
		}
		r.keep = f
	}
	return r, nil
}

// List implements source.Source.
func (r refined[T]) List(ctx context.Context, opts source.ListOptions, each func(T) error) (source.ListResult, error) {
	return r.Source.List(ctx, opts, func(o T) error {
		o, err := r.change(o)
		if err != nil || !r.keep(o) {
			return err
		}
		return each(o)
	})
}

// Watch implements source.Source.
func (r refined[T]) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[T]) error) error {
	return r.Source.Watch(ctx, opts, func(e source.Event[T]) error {
		if e.Type == source.Bookmark {
			return each(e)
		}
		var err error
		if e.Object, err = r.change(e.Object); err != nil {
			return err
		}
		if !r.keep(e.Object) {
			e.Type = source.Deleted // of no effect if it was not kept before
		}
		return each(e)
	})
}

// change applies the transform.
func (r refined[T]) change(o T) (T, error) {
	out, err := r.transform(o)
	if err != nil {
		return o, &source.DecodeError{Err: fmt.Errorf("transform %s: %w", Key(o), err)}
	}
	return out, nil
}
