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

// The reasons for which a mirror does not answer.
const (
	UnknownCluster  Reason = "UnknownCluster"  // Exists names those there are
	ClusterNeeded   Reason = "ClusterNeeded"   // there are several and no default; Exists names them
	UnknownResource Reason = "UnknownResource" // the cluster does not serve it; Exists has what is like it
	NotMirrored     Reason = "NotMirrored"     // the mirror is limited to the resources in Exists
	Withheld        Reason = "Withheld"        // secrets, unless the mirror was asked for them by name
	NotOffered      Reason = "NotOffered"      // the cluster does not offer the verb for the resource
	NotFound        Reason = "NotFound"        // no such object
	Invalid         Reason = "Invalid"         // the query makes no sense; Exists has what would
	Expired         Reason = "Expired"         // the continue token is of a state no longer held
	Forbidden       Reason = "Forbidden"       // the cluster does not allow it
	Unauthorized    Reason = "Unauthorized"    // the cluster does not accept the mirror's credentials
	Unreachable     Reason = "Unreachable"     // the cluster does not answer, or not sensibly
	NotSynced       Reason = "NotSynced"       // the first list is not complete yet; see Progress
	Ended           Reason = "Ended"           // the cluster was removed or replaced, the resource is gone, the mirror closed
)

// Error says why a mirror does not answer, and what would help.
type Error struct {
	Reason Reason
	// Message is for people and complete in itself.
	Message string
	// Exists has the names that could have been meant, if that is the question.
	Exists []string
	// Retry is after what time asking again may help; 0: not by itself.
	Retry time.Duration
	// Progress of the first list, for NotSynced.
	Progress *informer.Status
	// Err is the cause, if there is one: for what the API server answered, an
	// error that apimachinery's IsForbidden and its sisters understand.
	Err error
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf is the reason in err's chain, or "".
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// Invalidf makes the error of a request that makes no sense.
func Invalidf(format string, args ...any) *Error {
	return &Error{Reason: Invalid, Message: fmt.Sprintf(format, args...)}
}

// Why informers and the watches on them end. Watches yield these.
var (
	errRemoved  = &Error{Reason: Ended, Message: "the cluster has been removed from the mirror"}
	errReplaced = &Error{Reason: Ended, Message: "the cluster's configuration has changed; ask again", Retry: time.Second}
	errUnserved = &Error{Reason: Ended, Message: "the cluster no longer serves the resource"}
	errUnread   = &Error{Reason: Ended, Message: "nobody has read the resource for a while; ask again", Retry: time.Second}
	errClosed   = &Error{Reason: Ended, Message: "the mirror has been closed"}
)

// Upstream makes an [*Error] of what came back from the cluster, or did not: doing
// says what was being done to which resource, where err does not. The message is for
// callers, and does not say where the API server is; [Error.Err] does.
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

// unsynced says how far a first list has come.
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
