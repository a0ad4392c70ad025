package mirror

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
)

// Reason classifies an [Error].
type Reason string

// The reasons of errors.
const (
	UnknownCluster  Reason = "UnknownCluster"  // Exists has the names of the known ones
	ClusterNeeded   Reason = "ClusterNeeded"   // there are several and no default; Exists has their names
	UnknownResource Reason = "UnknownResource" // the cluster does not serve it; Exists has similar ones
	NotMirrored     Reason = "NotMirrored"     // the mirror is limited to the resources in Exists
	Withheld        Reason = "Withheld"        // secrets, unless they are in Options.Resources
	NotOffered      Reason = "NotOffered"      // the cluster does not offer the verb for the resource
	NotFound        Reason = "NotFound"        // no such object
	Invalid         Reason = "Invalid"         // the query is not valid; Exists has valid values
	Expired         Reason = "Expired"         // the continue token refers to a state that is no longer kept
	Forbidden       Reason = "Forbidden"       // the cluster does not allow it
	Unauthorized    Reason = "Unauthorized"    // the cluster does not accept the mirror's credentials
	Unreachable     Reason = "Unreachable"     // the cluster does not answer, or its answer makes no sense
	NotSynced       Reason = "NotSynced"       // the first list is not complete yet; see Progress
	Ended           Reason = "Ended"           // the cluster was removed or replaced, the resource is gone, the mirror closed
)

// Error says why the mirror cannot answer, and what the caller can do about it.
type Error struct {
	Reason Reason
	// Message is for people. It is complete without the other fields.
	Message string
	// Exists has the names that would be valid, where the error is about a name.
	Exists []string
	// Retry is the time after which a retry may succeed. 0 means that a retry alone
	// does not help.
	Retry time.Duration
	// Progress of the first list, for NotSynced.
	Progress *informer.Status
	// Err is the cause, if there is one. If the API server answered with an error,
	// it is one that IsForbidden and the other predicates of apimachinery accept.
	Err error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the [*Error] in err's chain, or "".
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// Invalidf returns an error of reason [Invalid].
func Invalidf(format string, args ...any) *Error {
	return &Error{Reason: Invalid, Message: fmt.Sprintf(format, args...)}
}

// The causes with which informers end. The watches on them yield these.
var (
	errRemoved  = &Error{Reason: Ended, Message: "the cluster has been removed from the mirror"}
	errReplaced = &Error{Reason: Ended, Message: "the cluster's configuration has changed; ask again", Retry: time.Second}
	errUnserved = &Error{Reason: Ended, Message: "the cluster no longer serves the resource"}
	errIdle     = &Error{Reason: Ended, Message: "the resource has been idle for too long and is no longer mirrored; ask again", Retry: time.Second}
	errClosed   = &Error{Reason: Ended, Message: "the mirror has been closed"}
)

// Upstream turns an error of a request to the cluster into an [*Error]. doing names
// the operation and the resource, if err does not. The message is for callers and
// does not contain the address of the API server; [Error.Err] does.
func (c *Cluster) Upstream(doing string, err error) error {
	var known *Error
	if err == nil || errors.As(err, &known) || errors.Is(err, context.Canceled) {
		return err
	}
	e := &Error{Reason: Unreachable, Message: cluster.PublicMessage(err), Err: err}
	if doing != "" {
		e.Message = doing + ": " + e.Message
	}
	var unknown *cluster.NotFoundError
	switch {
	case errors.As(err, &unknown):
		e.Reason, e.Message, e.Exists = UnknownResource, unknown.Error(), unknown.Similar
	case apierrors.IsForbidden(err):
		e.Reason = Forbidden
	case apierrors.IsUnauthorized(err):
		e.Reason = Unauthorized
	case apierrors.IsNotFound(err):
		e.Reason = NotFound
	case apierrors.IsMethodNotSupported(err):
		e.Reason = NotOffered
	case apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		e.Reason = Invalid
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		e.Reason = Expired
	default:
		e.Retry = 2 * time.Second
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			e.Retry = time.Duration(seconds) * time.Second
		}
	}
	return e
}

// unsynced is the error of an informer whose first list is not complete. It has the
// progress of that list.
func unsynced(k *Informer, status informer.Status) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of cluster %s are not mirrored completely yet: %s", k.resource, k.cluster.name, status.Phase)
	if status.Phase == informer.Listing {
		fmt.Fprintf(&b, ", %d objects so far", status.Received)
		if status.Expected > 0 {
			fmt.Fprintf(&b, " of %d", status.Expected)
		}
	}
	if status.LastError != nil {
		fmt.Fprintf(&b, "; last error: %s", cluster.PublicMessage(status.LastError))
	}
	retry := time.Second
	if !status.Retry.IsZero() {
		retry = max(retry, time.Until(status.Retry))
	}
	return &Error{Reason: NotSynced, Message: b.String(), Retry: retry, Progress: &status, Err: status.LastError}
}
