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

// Source provides the objects of an informer created with [NewFromSource]: from a
// store in this process, an API of another kind, or a test. It follows the rules
// of a Kubernetes list and watch. The informer never makes concurrent calls.
type Source[T Object] interface {
	// List calls each for every object and returns the version of that state. If
	// each returns an error, List returns it unchanged.
	List(ctx context.Context, each func(T) error) (resourceVersion string, err error)

	// Watch calls each for every change after resourceVersion, in order, and waits
	// for more until ctx ends, which happens every few minutes. If each returns an
	// error, Watch returns it unchanged.
	//
	// After an error for which apierrors.IsResourceExpired is true, the informer
	// lists again. Otherwise it watches again from the last version it received,
	// with backoff after an error and after a watch that ended within a second
	// without a change.
	Watch(ctx context.Context, resourceVersion string, each func(Change[T]) error) error
}

// Change is a change reported by a [Source].
type Change[T Object] struct {
	// Type is Added, Updated or Deleted, or Bookmark for a version reached without
	// a change.
	Type EventType
	// Object is the object after the change, or the deleted one. It is not set for
	// a Bookmark. The informer stores and shares it: it must not be modified any
	// more.
	Object T
	// ResourceVersion is the version of a Bookmark. Other changes have it in
	// Object.
	ResourceVersion string
}

// NewFromSource creates an informer of the objects of src, which it stores as they
// are, except for [Transform] and [Filter]. cluster is the name of the cluster in
// the status, logs and errors. The resource named there is that of T or the one
// set with [Resource]. Options that configure requests to an API server are
// errors.
func NewFromSource[T Object](cluster string, src Source[T], opts ...Option) (*Informer[T], error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if len(o.namespaces) > 0 || o.labels != "" || o.fields != "" || o.pageSize != 0 || o.codec.KeepManagedFields || o.compact || o.restorer != nil {
		return nil, errors.New("informer.NewFromSource: InNamespace, LabelSelector, FieldSelector, PageSize, KeepManagedFields, Compact and StartFrom are for API servers; select with informer.Filter, or in the source itself")
	}
	transform, keep, err := transformAndFilter[T](o)
	if err != nil {
		return nil, err
	}
	custom := customSource[T]{src, transform, customTarget[T](cluster, o)}
	inf := newInformer(o, keep, nil)
	inf.custom = true
	inf.setSources(scoped{custom, func() source.Target { return custom.target }})
	return inf, nil
}

// customTarget is the target of a custom source of T, for messages.
func customTarget[T Object](cluster string, o *options) source.Target {
	t := source.Target{Cluster: cluster}
	t.Resource.Resource = o.resource
	sample, ok := newOf(reflect.TypeFor[T]()).(runtime.Object)
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

// customSource is a [Source] as a source.Source.
type customSource[T Object] struct {
	src       Source[T]
	transform func(T) (T, error) // nil for none
	target    source.Target
}

// List implements source.Source. It does not use pages.
func (s customSource[T]) List(ctx context.Context, _ source.ListOptions, each func(Object) error) (source.ListResult, error) {
	version, err := s.src.List(ctx, func(o T) error {
		o, err := s.transformed(o)
		if err != nil {
			return err
		}
		return each(o)
	})
	return source.ListResult{ResourceVersion: version}, s.fail("list", err)
}

// Watch implements source.Source. It ends the watch after the timeout, as a server
// does.
func (s customSource[T]) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[Object]) error) error {
	watchCtx, cancel := context.WithTimeout(ctx, time.Duration(opts.TimeoutSeconds)*time.Second)
	defer cancel()
	err := s.src.Watch(watchCtx, opts.ResourceVersion, func(c Change[T]) error {
		e := source.Event[Object]{ResourceVersion: c.ResourceVersion}
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
			return errors.New("a source can report Added, Updated, Deleted and Bookmark, not " + c.Type.String())
		}
		var err error
		if e.Object, err = s.transformed(c.Object); err != nil {
			return err
		}
		return each(e)
	})
	if watchCtx.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return s.fail("watch", err)
}

func (s customSource[T]) transformed(o T) (T, error) {
	if s.transform == nil {
		return o, nil
	}
	return s.transform(o)
}

func (s customSource[T]) fail(verb string, err error) error {
	if err == nil {
		return nil
	}
	return &source.Error{Target: s.target, Verb: verb, Err: err}
}
