package informer

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/share"
)

// Option changes what an informer mirrors or how.
type Option func(*options) error

type options struct {
	resource   string
	namespaces []string
	labels     string
	fields     string
	from       string
	pageSize   int64
	retain     int
	scheme     *runtime.Scheme
	codec      codec.Options
	unshared   bool
	compact    bool
	shared     *share.Table // nil if unshared
	logger     *slog.Logger
	transform  any // func(T) (T, error)
	filter     any // func(T) bool
	detect     bool
	report     func(error) // of mutations; nil panics
}

func newOptions(opts []Option) (*options, error) {
	o := &options{scheme: scheme.Scheme, logger: slog.Default(), detect: detectByEnvironment()}
	var errs []error
	for _, opt := range opts {
		errs = append(errs, opt(o))
	}
	return o, errors.Join(errs...)
}

// Resource names the resource, in any form kubectl takes: plural, singular,
// short name, kind, resource.group or resource.version.group. It is needed for
// *unstructured.Unstructured and *metav1.PartialObjectMetadata; other Go types
// tell their resource themselves.
func Resource(name string) Option {
	return func(o *options) error {
		if strings.TrimSpace(name) == "" {
			return errors.New("informer.Resource: the name of the resource is empty")
		}
		o.resource = name
		return nil
	}
}

// InNamespace mirrors one namespace only, or several. Several are listed and
// watched one by one, which takes no rights outside of them; the informer is
// synced when all of them are, and its resourceVersion is that of the one
// furthest behind. None, or an empty name, means all namespaces.
func InNamespace(namespaces ...string) Option {
	return func(o *options) error {
		o.namespaces = nil
		for _, namespace := range namespaces {
			if namespace != "" && !slices.Contains(o.namespaces, namespace) {
				o.namespaces = append(o.namespaces, namespace)
			}
		}
		if len(o.namespaces) > 0 && len(o.namespaces) < len(namespaces) && slices.Contains(namespaces, "") {
			return fmt.Errorf("informer.InNamespace: %q names one namespace as empty, which means all, and others", namespaces)
		}
		slices.Sort(o.namespaces)
		return nil
	}
}

// WithLabels mirrors only objects that match a label selector, like
// "app=web,tier!=cache". The server does the selecting.
func WithLabels(selector string) Option {
	return func(o *options) error {
		if _, err := labels.Parse(selector); err != nil {
			return fmt.Errorf("label selector %q: %w", selector, err)
		}
		o.labels = selector
		return nil
	}
}

// WithFields mirrors only objects that match a field selector, like
// "spec.nodeName=worker-1". The server does the selecting, and decides which
// fields can be selected on.
func WithFields(selector string) Option {
	return func(o *options) error {
		if _, err := fields.ParseSelector(selector); err != nil {
			return fmt.Errorf("field selector %q: %w", selector, err)
		}
		o.fields = selector
		return nil
	}
}

// From begins with the changes after resourceVersion instead of a list. The
// informer then knows only objects that have changed since, and does not count
// as synced, until the server no longer has that version and a list follows. A
// handler that is added before the start is told of the changes as they happened;
// who begins to follow later is first told the state that they led to.
func From(resourceVersion string) Option {
	return func(o *options) error { o.from = resourceVersion; return nil }
}

// Retain keeps at least the last n events, for [Informer.EventsSince]. They
// keep the objects they tell of in memory. The default is none.
func Retain(n int) Option {
	return func(o *options) error {
		if n < 0 {
			return fmt.Errorf("informer.Retain: %d events cannot be kept", n)
		}
		o.retain = n
		return nil
	}
}

// PageSize is the number of objects asked for at a time where the server does
// not stream its lists. The default is 500.
func PageSize(n int64) Option {
	return func(o *options) error {
		if n < 1 {
			return fmt.Errorf("informer.PageSize: a page of %d objects cannot be asked for", n)
		}
		o.pageSize = n
		return nil
	}
}

// KeepManagedFields keeps metadata.managedFields on the objects, which is
// otherwise dropped: it is often half of an object.
func KeepManagedFields() Option {
	return func(o *options) error { o.codec.KeepManagedFields = true; return nil }
}

// Unshared keeps each object of a Go type by itself. Otherwise equal parts of
// objects are the same memory: containers, volumes, labels and whatever else the
// pods of a ReplicaSet have in common, which halves the heap or better and cannot
// be seen by those who only read. Objects of built-in kinds are decoded faster
// for it, since what is known is not decoded again; those of other kinds take about
// a third more time.
func Unshared() Option {
	return func(o *options) error { o.unshared = true; return nil }
}

// WithScheme is where the kinds of Go types are looked up. The default knows
// the built-in kinds.
func WithScheme(s *runtime.Scheme) Option {
	return func(o *options) error { o.scheme = s; return nil }
}

// WithLogger sets the logger: errors that are waited out and handlers that
// panic are warnings, relists are information. The default is slog.Default().
func WithLogger(l *slog.Logger) Option {
	return func(o *options) error { o.logger = l; return nil }
}
