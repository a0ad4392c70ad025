package informer

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidings-io/tidings/internal/source"
)

// Source is where an informer made with [NewFromSource] gets its objects: a
// store in this process, an API of another kind, a test. It speaks by the rules
// of a Kubernetes list and watch. One goroutine at a time calls it.
type Source[T Object] interface {
	// List calls each for every object there is, and returns the version of that
	// state. An error from each ends it and is returned as it is.
	List(ctx context.Context, each func(T) error) (resourceVersion string, err error)

	// Watch calls each for every change after resourceVersion, in the order in
	// which they happened, and waits for more until ctx ends, which it does every
	// few minutes. An error from each ends it and is returned as it is. After an
	// error that apierrors.IsResourceExpired knows the informer lists again;
	// otherwise it watches again, from the last version it was told: after an
	// error, or a watch that brought nothing and ended within a second, with
	// backoff.
	Watch(ctx context.Context, resourceVersion string, each func(Change[T]) error) error
}

// Change is what a [Source] says has happened.
type Change[T Object] struct {
	// Type is Added, Updated or Deleted, or Bookmark for a version that was
	// reached without a change.
	Type EventType
	// Object as the change left it, not set for a Bookmark. The informer keeps it
	// and shares it with all who read: nobody may modify it any more.
	Object T
	// ResourceVersion of a Bookmark. The others have it in Object.
	ResourceVersion string
}

// NewFromSource prepares an informer of the objects of src, which keeps them as
// they come, but for [Transform] and [Filter]. Status, logs and errors say that
// they are of cluster, and that the resource is that of T or the one named with
// [Resource]. Options that say what to ask a server for are errors, since src
// decides that.
func NewFromSource[T Object](cluster string, src Source[T], opts ...Option) (*Informer[T], error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if len(o.namespaces) > 0 || o.labels != "" || o.fields != "" || o.pageSize != 0 || o.codec.KeepManagedFields || o.compact {
		return nil, errors.New("informer.NewFromSource: InNamespace, WithLabels, WithFields, PageSize, KeepManagedFields and Compact are for API servers; choose with informer.Filter, or in the source itself")
	}
	transform, keep, err := refinements[T](o)
	if err != nil {
		return nil, err
	}
	own := ownSource[T]{src, transform, describeOwn[T](cluster, o)}
	scope := scoped[T]{own, func() source.Target { return own.about }}
	if keep != nil {
		scope.Source = filtered[T]{own, keep}
	}
	e := newStored(o, func(obj T) T { return obj })
	e.sources.Store(&[]scoped[T]{scope})
	inf := newInformer[T](o, e)
	inf.own = true
	return inf, nil
}

// describeOwn says what a source of T is called.
func describeOwn[T Object](cluster string, o *options) source.Target {
	t := source.Target{Cluster: cluster}
	t.Resource.Resource = o.resource
	sample, ok := any(newOf[T]()).(runtime.Object)
	if ok && o.resource == "" {
		if kinds, _, err := o.scheme.ObjectKinds(sample); err == nil {
			t.Resource, _ = meta.UnsafeGuessKindToResource(kinds[0])
			t.Kind = kinds[0].Kind
		}
	}
	if t.Resource.Resource == "" {
		t.Resource.Resource = strings.TrimPrefix(reflect.TypeFor[T]().String(), "*")
	}
	return t
}

// ownSource is a Source by the engine's rules.
type ownSource[T Object] struct {
	src       Source[T]
	transform func(T) (T, error) // nil for none
	about     source.Target
}

// List implements source.Source. It is never in pages.
func (s ownSource[T]) List(ctx context.Context, _ source.ListOptions, each func(T) error) (source.ListResult, error) {
	version, err := s.src.List(ctx, func(o T) error {
		o, err := s.refine(o)
		if err != nil {
			return err
		}
		return each(o)
	})
	return source.ListResult{ResourceVersion: version}, s.fail("list", err)
}

// Watch implements source.Source. It ends the watch in time, as a server does.
func (s ownSource[T]) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[T]) error) error {
	lasts, cancel := context.WithTimeout(ctx, time.Duration(opts.TimeoutSeconds)*time.Second)
	defer cancel()
	err := s.src.Watch(lasts, opts.ResourceVersion, func(c Change[T]) error {
		e := source.Event[T]{ResourceVersion: c.ResourceVersion}
		switch c.Type {
		case Added:
			e.Type = source.Added
		case Updated:
			e.Type = source.Modified
		case Deleted:
			e.Type = source.Deleted
		case Bookmark:
			e.Type = source.Bookmark
			return each(e)
		default:
			return errors.New("a source can tell of Added, Updated, Deleted and Bookmark, not of " + c.Type.String())
		}
		var err error
		if e.Object, err = s.refine(c.Object); err != nil {
			return err
		}
		return each(e)
	})
	if lasts.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return s.fail("watch", err)
}

func (s ownSource[T]) refine(o T) (T, error) {
	if s.transform == nil {
		return o, nil
	}
	return s.transform(o)
}

func (s ownSource[T]) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return &source.Error{Target: s.about, Verb: verb, Err: err}
}
