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
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// kubeSource is a source that discovers its resource with the first request:
// creating an informer does no network I/O, starting it does.
type kubeSource struct {
	cluster *cluster.Cluster
	opts    *options
	codec   codecs
	held    source.Lookup[Object]
	warm    *warmStart // nil: starts with a list

	goType reflect.Type            // of the informer
	kind   schema.GroupVersionKind // of goType, if it follows from that
	guess  source.Target           // for messages until the resource is known
	found  atomic.Pointer[source.Kube[Object]]
}

// codecs returns the codec that makes what the store holds of objects of a kind.
type codecs func(schema.GroupVersionKind) (codec.Codec[Object], error)

// kindOf returns the kind of T. With the option [Resource] it is not known yet, and
// empty. It is an error if objects cannot be kept as T.
func kindOf[T Object](o *options) (kind schema.GroupVersionKind, err error) {
	if o.resource == "" {
		t := reflect.TypeFor[T]()
		if o.kind != "" {
			return kind, fmt.Errorf("informer of %s: informer.Kind needs informer.Resource, because several groups may have a kind %s", t, o.kind)
		}
		sample, ok := newOf(t).(runtime.Object)
		if !ok {
			return kind, fmt.Errorf("informer of %s: say which resource with informer.Resource", t)
		}
		kinds, _, err := o.scheme.ObjectKinds(sample)
		if err != nil {
			return kind, fmt.Errorf("informer of %s: say which resource with informer.Resource, or where the type is registered with informer.Scheme: %w", t, err)
		}
		kind = kinds[0]
	}
	_, err = codec.For[T](kind, o.codec)
	return kind, err
}

func newKubeSource(c *cluster.Cluster, namespace string, o *options, goType reflect.Type, kind schema.GroupVersionKind, codec codecs, held source.Lookup[Object]) *kubeSource {
	s := &kubeSource{cluster: c, opts: o, codec: codec, held: held, goType: goType, kind: kind, guess: source.Target{Cluster: c.Name(), Namespace: namespace, Labels: o.labels, Fields: o.fields}}
	if s.guess.Resource.Resource = o.resource; o.resource == "" {
		s.guess.Resource, _ = meta.UnsafeGuessKindToResource(kind)
		s.guess.Kind = kind.Kind
	}
	return s
}

// newOf returns an empty object of a Go type, or nil if that is not a pointer.
func newOf(t reflect.Type) any {
	if t.Kind() == reflect.Pointer {
		return reflect.New(t.Elem()).Interface()
	}
	return nil
}

// target is the source's target, as far as it is known.
func (s *kubeSource) target() source.Target {
	if found := s.found.Load(); found != nil {
		return found.Target()
	}
	return s.guess
}

// resolve returns the source of the resource, which it discovers if necessary.
func (s *kubeSource) resolve(ctx context.Context, verb string) (*source.Kube[Object], error) {
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

func (s *kubeSource) discover(ctx context.Context) (*source.Kube[Object], error) {
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
		if err := checkKind(r, s.goType, s.opts); err != nil {
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
	c, err := s.codec(r.GVK())
	if err != nil {
		return nil, err
	}
	target := s.guess
	target.Resource, target.Kind = r.GVR(), r.Kind
	return source.NewKube(s.cluster.HTTPClient(), s.cluster.BaseURL(), target, c).Reuse(s.lookup), nil
}

// lookup returns an object that need not be decoded again.
func (s *kubeSource) lookup(id object.Identity) (Object, bool) {
	if o, ok := s.held(id); ok || s.warm == nil {
		return o, ok
	}
	return s.warm.lookup(id)
}

// Prepare implements source.Preparer.
func (s *kubeSource) Prepare(ctx context.Context) (restored bool, err error) {
	if s.warm == nil {
		return false, nil
	}
	if !s.warm.loaded {
		k, err := s.resolve(ctx, "list")
		if err == nil {
			err = s.warm.load(ctx, k)
		}
		if err != nil {
			return false, err
		}
	}
	return s.warm.version != "", nil
}

// List implements source.Source.
func (s *kubeSource) List(ctx context.Context, opts source.ListOptions, each func(Object) error) (source.ListResult, error) {
	k, err := s.resolve(ctx, "list")
	if err != nil {
		return source.ListResult{}, err
	}
	result, err := k.List(ctx, opts, each)
	return result, s.checkNotFound(ctx, "list", err)
}

// Watch implements source.Source.
func (s *kubeSource) Watch(ctx context.Context, opts source.WatchOptions, each func(source.Event[Object]) error) error {
	k, err := s.resolve(ctx, "watch")
	if err != nil {
		return err
	}
	if s.warm != nil {
		return s.checkNotFound(ctx, "watch", s.warm.watch(ctx, k, opts, each))
	}
	return s.checkNotFound(ctx, "watch", k.Watch(ctx, opts, each))
}

// Latest implements source.Versioner.
func (s *kubeSource) Latest(ctx context.Context) (string, error) {
	k, err := s.resolve(ctx, "list")
	if err != nil {
		return "", err
	}
	return k.Latest(ctx)
}

// checkNotFound repeats discovery if err says that the server does not find the
// resource, which may have been removed or be served in another version now.
func (s *kubeSource) checkNotFound(ctx context.Context, verb string, err error) error {
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
