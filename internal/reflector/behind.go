package reflector

import (
	"context"
	"fmt"
	"time"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// An API server takes a watch from a resourceVersion that is yet to come without
// a word, and leaves out of it everything up to there. So a cluster that has been
// restored from a backup is silent to all who knew it before: they miss what
// happens until it has come to where it was, and what was undone they never learn.
// No error ends that. But nobody restores a cluster without its connections
// breaking, so a watch that follows a failure and is silent is looked into: the
// newest version of a server that has everything is not older than one it has
// told before.

// doubtAfter is how long a watch after a failure may be silent before the server
// is asked which version it is at.
const doubtAfter = 5 * time.Second

// behindError says that the server is at an older version than it once was.
type behindError struct{ server, ours string }

func (e *behindError) Error() string {
	return fmt.Sprintf("the server is at resourceVersion %s and was at %s before: the cluster has been restored from a backup", e.server, e.ours)
}

// doubt asks the server which version it is at, unless the watch from a version
// is found to be alive before that, and ends the watch with a behindError if the
// server is behind. stop may be called any number of times.
func (r *Reflector[T]) doubt(ctx context.Context, version string, end context.CancelCauseFunc) (stop func()) {
	dated, ok := r.src.(source.Dated)
	if !ok || !r.doubtful || object.Version(version) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	asked := make(chan struct{})
	timer := time.AfterFunc(doubtAfter, func() {
		defer close(asked)
		server, err := dated.Latest(ctx)
		if at := object.Version(server); err == nil && at > 0 && at < object.Version(version) {
			end(&behindError{server: server, ours: version})
		}
	})
	return func() {
		cancel()
		if !timer.Stop() {
			<-asked
		}
	}
}
