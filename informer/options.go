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

// Option configures an informer: what it mirrors, or how.
type Option func(*options) error

type options struct {
	resource   string
	kind       string // of T, if it does not follow from T
	namespaces []string
	labels     string
	fields     string
	from       string
	restorer   Restorer // nil for none
	pageSize   int64
	plainLists bool // no WatchList streams
	retain     int
	scheme     *runtime.Scheme
	codec      codec.Options
	unshared   bool
	compact    bool
	shared     *share.Table // nil if unshared
	logger     *slog.Logger
	transform  any // func(T) (T, error)
	filter     any // func(T) bool
	owners     bool
	detect     bool
	report     func(error) // of mutations; nil panics
	panics     panics
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
// *unstructured.Unstructured and *metav1.PartialObjectMetadata, and for Go types
// that are not registered in the [Scheme]. For registered types it follows from the
// type. Type and resource must belong together, see [Kind].
func Resource(name string) Option {
	return func(o *options) error {
		if strings.TrimSpace(name) == "" {
			return errors.New("informer.Resource: the name of the resource is empty")
		}
		o.resource = name
		return nil
	}
}

// InNamespace mirrors only one namespace, or several. Several are listed and
// watched one by one, which needs no permissions outside of them. The informer
// is synced when all of them are, and its resourceVersion is the lowest of
// theirs. None, or one empty name, means all namespaces.
func InNamespace(namespaces ...string) Option {
	return func(o *options) error {
		o.namespaces = nil
		for _, namespace := range namespaces {
			if namespace != "" && !slices.Contains(o.namespaces, namespace) {
				o.namespaces = append(o.namespaces, namespace)
			}
		}
		if len(o.namespaces) > 0 && len(o.namespaces) < len(namespaces) && slices.Contains(namespaces, "") {
			return fmt.Errorf("informer.InNamespace: %q contains an empty name, which means all namespaces, and other names", namespaces)
		}
		slices.Sort(o.namespaces)
		return nil
	}
}

// LabelSelector mirrors only objects that match a label selector, like
// "app=web,tier!=cache". The server applies it.
func LabelSelector(selector string) Option {
	return func(o *options) error {
		if _, err := labels.Parse(selector); err != nil {
			return fmt.Errorf("label selector %q: %w", selector, err)
		}
		o.labels = selector
		return nil
	}
}

// FieldSelector mirrors only objects that match a field selector, like
// "spec.nodeName=worker-1". The server applies it, and decides which fields can
// be selected on.
func FieldSelector(selector string) Option {
	return func(o *options) error {
		if _, err := fields.ParseSelector(selector); err != nil {
			return fmt.Errorf("field selector %q: %w", selector, err)
		}
		o.fields = selector
		return nil
	}
}

// From begins with the changes after resourceVersion instead of a list. The
// informer then knows only the objects that have changed since, and is not
// synced, until the server no longer has that version and a list follows. A
// handler added before the start receives the changes as they happened. Later
// subscribers first receive the state that the changes led to.
func From(resourceVersion string) Option {
	return func(o *options) error { o.from = resourceVersion; return nil }
}

// Retain keeps at least the last n events for [Informer.EventsSince], with their
// objects. The default is none.
func Retain(n int) Option {
	return func(o *options) error {
		if n < 0 {
			return fmt.Errorf("informer.Retain: %d events cannot be kept", n)
		}
		o.retain = n
		return nil
	}
}

// PageSize is the number of objects to request per page from a server that does
// not stream its lists. The default is 500.
func PageSize(n int64) Option {
	return func(o *options) error {
		if n < 1 {
			return fmt.Errorf("informer.PageSize: a page of %d objects cannot be requested", n)
		}
		o.pageSize = n
		return nil
	}
}

// KeepManagedFields keeps metadata.managedFields, which is otherwise dropped: it
// is often half of an object.
func KeepManagedFields() Option {
	return func(o *options) error { o.codec.KeepManagedFields = true; return nil }
}

// Unshared stores each object of a Go type separately. By default, equal parts of
// objects use the same memory: containers, volumes, labels and everything else
// that the pods of a ReplicaSet have in common. Sharing halves the heap or
// better and is invisible to callers that only read. It makes decoding of
// built-in kinds faster, since known parts are not decoded again, and decoding
// of other kinds about a third slower.
func Unshared() Option {
	return func(o *options) error { o.unshared = true; return nil }
}

// Compact stores objects encoded and compressed, and decodes an object when it is
// read. A pod then takes less than a kilobyte, including keys and indexes: a
// tenth of its decoded size. A Get or an event costs tens of microseconds
// instead of a fraction of one. Objects read are equal to those of an informer
// without the option. While a caller holds a decoded object, other readers get
// the same one, so that any number of handlers together decode it once.
//
// Label selectors decode only the objects that match. Indexes added with
// [Informer.AddIndex] decode an object when it changes. With [Transform], objects
// are decoded and encoded again as they arrive.
func Compact() Option {
	return func(o *options) error { o.compact = true; return nil }
}

// IndexOwners keeps an index of the objects by the uids of their owners, for
// [Query.Owner]. It takes about 30 bytes for each owner that an object has.
func IndexOwners() Option {
	return func(o *options) error { o.owners, o.codec.Owners = true, true; return nil }
}

// Scheme is used to look up the kinds of Go types. The default knows the
// built-in kinds. Add your own types by the AddToScheme function of their package, or
// name the resource with [Resource].
func Scheme(s *runtime.Scheme) Option {
	return func(o *options) error { o.scheme = s; return nil }
}

// Logger sets the logger. Errors that are retried and panics of handlers and other
// functions are warnings, relists are information. The default is slog.Default().
func Logger(l *slog.Logger) Option {
	return func(o *options) error { o.logger = l; return nil }
}
