package informer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/internal/object"
	"github.com/tidings-io/tidings/internal/source"
)

// Restorer has the state of an informer from an earlier run; see [StartFrom].
type Restorer interface {
	// Restore calls each for the JSON of every object of the newest state that it has,
	// in any order, and returns the resourceVersion of that state: an empty one if it
	// has none. The JSON is as the API server sent it. It must not have been changed
	// before each returns. If each returns an error, Restore returns it.
	//
	// The state must be of the same cluster: nothing else checks that. Restore is called
	// in a goroutine of the informer, and again if it has failed because ctx ended.
	Restore(ctx context.Context, each func(json []byte) error) (resourceVersion string, err error)
}

// StartFrom starts the informer from the state of an earlier run instead of a list. The
// informer asks the API server for a watch from that state's resourceVersion, and is
// synced once the server has accepted it. It lists if the server no longer knows the
// version, or is behind it because it was restored from a backup. Such a list does not
// decode the objects that have not changed. An error of the Restorer is logged, and the
// informer lists. After [Informer.Empty] it lists, too.
func StartFrom(r Restorer) Option {
	return func(o *options) error {
		if r == nil {
			return errors.New("informer.StartFrom: the restorer is nil")
		}
		o.restorer = r
		return nil
	}
}

// warmStart is the beginning of an informer with a [Restorer]. Only one goroutine at a
// time uses it.
type warmStart struct {
	restorer Restorer
	log      func() *slog.Logger

	loaded  bool
	version string   // of the restored state; empty: none, or it has been used
	items   []Object // of the restored state
	failed  int      // watches that were accepted and failed

	// known are the restored objects, while a list may have them, too. A list that is
	// being decoded may read them after another has ended.
	known atomic.Pointer[map[object.Identity]Object]
}

func newWarmStart(r Restorer, log func() *slog.Logger) *warmStart {
	return &warmStart{restorer: r, log: log}
}

// load reads the state.
func (w *warmStart) load(ctx context.Context, k *source.Kube[Object]) error {
	w.items = nil
	err := k.DecodeJSON(func(encoding func([]byte) error) (err error) {
		w.version, err = w.restorer.Restore(ctx, encoding)
		return err
	}, func(o Object) error {
		w.items = append(w.items, o)
		return nil
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		w.log().Warn("cannot start from the state of an earlier run; listing", "err", err)
		w.version, w.items = "", nil
	}
	w.loaded = true
	return nil
}

// watch is k.Watch, which it replaces as long as the restored state has not been used.
func (w *warmStart) watch(ctx context.Context, k *source.Kube[Object], opts source.WatchOptions, each func(source.Event[Object]) error) error {
	if !opts.InitialEvents {
		w.known.Store(nil) // the list is complete
		return k.Watch(ctx, opts, each)
	}
	if w.version != "" {
		used, err := w.resume(ctx, k, opts, each)
		if used || err != nil {
			return err
		}
	}
	if w.known.Load() == nil {
		return k.Watch(ctx, opts, each)
	}
	return k.Watch(ctx, opts, func(e source.Event[Object]) error {
		if e.InitialEventsEnd {
			w.known.Store(nil)
		}
		return each(e)
	})
}

// firstEventGrace is how long an accepted watch may take to report that its version is too
// old.
const firstEventGrace = 50 * time.Millisecond

// mostFailures is the number of accepted watches that may fail before the informer lists.
const mostFailures = 3

// resume delivers the restored objects as initial events, followed by the changes since,
// once the server has accepted a watch from their version. If used is false and there is
// no error, the server cannot go on from there, and the informer must list.
func (w *warmStart) resume(ctx context.Context, k *source.Kube[Object], opts source.WatchOptions, each func(source.Event[Object]) error) (used bool, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	begin := func() error {
		// An API server accepts a watch from a version in the future, see
		// reflector.checkLatest.
		version, err := k.Current(ctx)
		switch {
		case err != nil:
			return err
		case object.Version(version) < object.Version(w.version):
			return fmt.Errorf("the server is at resourceVersion %s: the cluster has been restored from a backup: %w", version, errBehind)
		}
		// If the version is too old, the first event of the watch says so, at once.
		select {
		case <-time.After(firstEventGrace):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		used = true
		w.log().Info("going on where an earlier run ended", "objects", len(w.items), "resourceVersion", w.version)
		for _, o := range w.items {
			if err := each(source.Event[Object]{Type: source.Added, Object: o}); err != nil {
				return err
			}
		}
		return each(source.Event[Object]{Type: source.Bookmark, InitialEventsEnd: true, ResourceVersion: w.version})
	}
	// The watch is read meanwhile, for its error. Its events wait for the initial ones.
	var failed error // of begin; set before begun is closed
	begun, accepted := make(chan struct{}), false
	err = k.Watch(ctx, source.WatchOptions{
		ResourceVersion: w.version, TimeoutSeconds: opts.TimeoutSeconds,
		Accepted: func() {
			accepted = true
			go func() {
				defer close(begun)
				if failed = begin(); failed != nil {
					end(failed)
				}
			}()
		},
	}, func(e source.Event[Object]) error {
		<-begun
		if failed != nil {
			return failed
		}
		return each(e)
	})
	end(err)
	if accepted {
		<-begun
	}
	if accepted && !used {
		w.failed++
	}
	switch {
	case used:
		w.version, w.items = "", nil
		return true, err
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge), errors.Is(err, errBehind), w.failed >= mostFailures:
		w.log().Info("cannot go on where an earlier run ended; listing", "resourceVersion", w.version, "err", err)
		known := make(map[object.Identity]Object, len(w.items))
		for _, o := range w.items {
			known[object.Identity{Namespace: o.GetNamespace(), Name: o.GetName(), UID: string(o.GetUID()), ResourceVersion: o.GetResourceVersion()}] = o
		}
		w.known.Store(&known)
		w.version, w.items = "", nil
		return false, nil
	}
	return false, err
}

var errBehind = errors.New("the server is behind")

// lookup returns a restored object.
func (w *warmStart) lookup(id object.Identity) (Object, bool) {
	known := w.known.Load()
	if known == nil {
		return nil, false
	}
	o, ok := (*known)[id]
	return o, ok
}
