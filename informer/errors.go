package informer

import (
	"errors"
	"fmt"

	"github.com/tidings-io/tidings/internal/mutation"
	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/reflector"
)

// ErrStarted is returned when a running informer is started again.
var ErrStarted = errors.New("the informer has been started already")

// ErrExpired is returned if the informer does not have all changes since a
// resourceVersion: it has never had them, or keeps them no longer.
var ErrExpired = errors.New("the changes since that resourceVersion are not retained")

// ErrVersion is returned for a resourceVersion that is not a decimal number.
var ErrVersion = errors.New("not a resourceVersion that can be compared: a decimal number is needed")

// RefusedError is the error of an informer that ended because the server refused
// its first list or watch: a permission is missing, or the resource does not
// exist. Err is the cause, for package apierrors to examine. Hint says what would
// help; the message contains both, and the cluster, resource and verb.
//
//	if refused := (*informer.RefusedError)(nil); errors.As(err, &refused) { … }
type RefusedError = reflector.RefusedError

// MutationError reports shared objects that were modified, see
// [DetectMutations]. Objects are their keys and Diffs the changes. Suspect, if
// not empty, is the handler or loop that had just returned.
type MutationError = mutation.Error

// parseVersion returns the number of a resourceVersion, or an [ErrVersion].
func parseVersion(resourceVersion string) (uint64, error) {
	version := object.Version(resourceVersion)
	if version == 0 {
		return 0, fmt.Errorf("%w, not %q", ErrVersion, resourceVersion)
	}
	return version, nil
}
