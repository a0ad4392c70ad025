package informer

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/source"
)

// kubeSource is a source that discovers its resource with the first request:
// creating an informer does no network I/O, starting it does. The informer's store
// holds an S for each T.
type kubeSource[T, S Object] struct {
	cluster *cluster.Cluster
	opts    *options
	codec   func(codec.Codec[T]) codec.Codec[S]
	held    source.Lookup[S]

	kind  schema.GroupVersionKind // of T, if it follows from T
	guess source.Target           // for messages until the resource is known
	found atomic.Pointer[source.Kube[S]]
}

func newKubeSource[T, S Object](c *cluster.Cluster, namespace string, o *options, keep func(codec.Codec[T]) codec.Codec[S], held source.Lookup[S]) (*kubeSource[T, S], error) {
	s := &kubeSource[T, S]{cluster: c, opts: o, codec: keep, held: held, guess: source.Target{Cluster: c.Name(), Namespace: namespace, Labels: o.labels, Fields: o.fields}}
	if o.resource != "" {
		// Only for its error: the kind is not known yet.
		if _, err := codec.For[T](schema.GroupVersionKind{}, o.codec); err != nil {
			return nil, err
		}
		s.guess.Resource.Resource = o.resource
		return s, nil
	}
	t := reflect.TypeFor[T]()
	if o.kind != "" {
		return nil, fmt.Errorf("informer of %s: informer.Kind needs informer.Resource, because several groups may have a kind %s", t, o.kind)
	}
	sample, ok := any(newOf[T]()).(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("informer of %s: say which resource with informer.Resource", t)
	}
	kinds, _, err := o.scheme.ObjectKinds(sample)
	if err != nil {
		return nil, fmt.Errorf("informer of %s: say which resource with informer.Resource, or where the type is registered with informer.Scheme: %w", t, err)
	}
	s.kind = kinds[0]
	plural, _ := meta.UnsafeGuessKindToResource(s.kind)
	s.guess.Resource, s.guess.Kind = plural, s.kind.Kind
	_, err = codec.For[T](s.kind, o.codec)
	return s, err
}

// newOf returns an empty object, or nil if T is not a pointer.
func newOf[T any]() any {
	if t := reflect.TypeFor[T](); t.Kind() == reflect.Pointer {
		return reflect.New(t.Elem()).Interface()
	}
	return nil
}

// target is the source's target, as far as it is known.
func (s *kubeSource[T, S]) target() source.Target {
	if found := s.found.Load(); found != nil {
		return found.Target()
	}
	return s.guess
}

// resolve returns the source of the resource, which it discovers if necessary.
func (s *kubeSource[T, S]) resolve(ctx context.Context, verb string) (*source.Kube[S], error) {
	if found := s.found.Load(); found != nil {
		return found, nil
	}
	found, err := s.discover(ctx)
	if err != nil {
		return nil, &source.Error{Target: s.guess, Verb: verb, Err: err}
	}
	s.found.Store(found)
	return found, nil
}

func (s *kubeSource[T, S]) discover(ctx context.Context) (*source.Kube[S], error) {
	var r cluster.Resource
	var err error
	if s.opts.resource != "" {
		r, err = s.cluster.Resolve(ctx, s.opts.resource)
	} else {
		r, err = s.cluster.ResourceForKind(ctx, s.kind)
	}
	if unknown := (*cluster.NotFoundError)(nil); errors.As(err, &unknown) {
		return nil, &source.GoneError{Err: refusal{error: err, reason: metav1.StatusReasonNotFound}}
	}
	if err != nil {
		return nil, err
	}
	if s.guess.Namespace != "" && !r.Namespaced {
		return nil, refusal{
			error:  fmt.Errorf("%s are not namespaced, so there are none in namespace %q: ask without a namespace", r, s.guess.Namespace),
			reason: metav1.StatusReasonBadRequest,
		}
	}
	if s.opts.resource != "" {
		if err := checkKind[T](r, s.opts); err != nil {
			return nil, err
		}
	}
	for _, verb := range []string{"list", "watch"} {
		if !r.Can(verb) {
			return nil, refusal{
				error:  fmt.Errorf("the server does not offer the verb %s for %s", verb, r),
				reason: metav1.StatusReasonMethodNotAllowed,
			}
		}
	}
	c, err := codec.For[T](r.GVK(), s.opts.codec)
	if err != nil {
		return nil, err
	}
	target := s.guess
	target.Resource, target.Kind = r.GVR(), r.Kind
	return source.NewKube(s.cluster.HTTPClient(), s.cluster.BaseURL(), target, s.codec(c)).Reuse(s.held), nil
}

// List implements source.Source.
func (s *kubeSource[T, S]) List(ctx context.Context, opts source.ListOptions, each func(S) error) (source.ListResult, error) {
	k, err := s.resolve(ctx, "list")
	if err != nil {
		return source.ListResult{}, err
	}
	result, err := k.List(ctx, opts, each)
	return result, s.checkNotFound(ctx, "list", err)
}

// Watch implements source.Source.
func (s *kubeSource[T, S]) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[S]) error) error {
	k, err := s.resolve(ctx, "watch")
	if err != nil {
		return err
	}
	return s.checkNotFound(ctx, "watch", k.Watch(ctx, opts, each))
}

// Latest implements source.Versioner.
func (s *kubeSource[T, S]) Latest(ctx context.Context) (string, error) {
	k, err := s.resolve(ctx, "list")
	if err != nil {
		return "", err
	}
	return k.Latest(ctx)
}

// checkNotFound repeats discovery if err says that the server does not find the
// resource, which may have been removed or be served in another version now.
func (s *kubeSource[T, S]) checkNotFound(ctx context.Context, verb string, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	s.found.Store(nil)
	s.cluster.Invalidate()
	if _, again := s.resolve(ctx, verb); apierrors.IsNotFound(again) {
		return again
	}
	return err
}

// refusal is a refusal that follows from discovery. Package apierrors treats it
// like one from the server.
type refusal struct {
	error
	reason metav1.StatusReason
	hint   string // what would help, if the reason does not say
}

func (r refusal) Unwrap() error { return r.error }

// Hint implements [reflector.Hinter].
func (r refusal) Hint() string { return r.hint }

func (r refusal) Status() metav1.Status {
	return metav1.Status{Status: metav1.StatusFailure, Reason: r.reason, Message: r.Error()}
}
