package reflector

import (
	"context"
	"fmt"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// An API server accepts a watch from a resourceVersion in the future and sends
// nothing up to that version. After a cluster has been restored from a backup, a
// client from before the restore therefore misses every change until the cluster
// reaches the old version again, and never learns what the restore undid. No error
// ends such a watch.
//
// But a restore breaks all connections. So with each watch that follows a failure
// the reflector asks the server for its latest version, which is never older than
// one the server has sent. It asks at once: a cluster that has just been restored
// is busy, and may soon reach the old version.

// behindError says that the server's latest version is older than one it has sent.
type behindError struct{ server, ours string }

func (e *behindError) Error() string {
	return fmt.Sprintf("the server is at resourceVersion %s and was at %s before: the cluster has been restored from a backup", e.server, e.ours)
}

// checkLatest asks for the server's latest version while a watch from version
// begins, and ends the watch with a behindError if the server is behind. The
// caller must call stop after the watch has ended.
func (r *Reflector[T]) checkLatest(ctx context.Context, version string, end context.CancelCauseFunc) (stop func()) {
	src, ok := r.src.(source.Versioner)
	if !ok || object.Version(version) == 0 {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	done := make(chan struct{})
	go func() {
		defer close(done)
		server, err := src.Latest(ctx)
		if v := object.Version(server); err == nil && v > 0 && v < object.Version(version) {
			end(&behindError{server: server, ours: version})
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
