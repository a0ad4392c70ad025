package reflector

import (
	"context"
	"fmt"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// An API server takes a watch from a resourceVersion that is yet to come without
// a word, and leaves out of it everything up to there. So a cluster that has been
// restored from a backup is silent to all who knew it before: they miss what
// happens until it has come to where it was, and what was undone they never learn.
// No error ends that. But nobody restores a cluster without its connections
// breaking, so with each watch that follows a failure the server is asked for its
// newest version, which is not older than one it has told before. It is asked at
// once: a cluster that has just been restored is busy, and may soon have come to
// where it was.

// behindError says that the server is at an older version than it once was.
type behindError struct{ server, ours string }

func (e *behindError) Error() string {
	return fmt.Sprintf("the server is at resourceVersion %s and was at %s before: the cluster has been restored from a backup", e.server, e.ours)
}

// doubt asks the server which version it is at while a watch from a version is
// begun, if there is reason to, and ends the watch with a behindError if the server
// is behind. stop is to be called when the watch has ended.
func (r *Reflector[T]) doubt(ctx context.Context, version string, end context.CancelCauseFunc) (stop func()) {
	dated, ok := r.src.(source.Dated)
	if !ok || !r.doubtful || object.Version(version) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		server, err := dated.Latest(ctx)
		if at := object.Version(server); err == nil && at > 0 && at < object.Version(version) {
			end(&behindError{server: server, ours: version})
		}
	}()
	return func() {
		cancel()
		<-asked
	}
}
