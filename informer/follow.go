package informer

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
)

// follower reads an informer's news at its own pace: first everything there
// is, from a snapshot, then the log from the very place where the snapshot
// ends. Nothing falls between the two and nothing comes twice. It can be
// interrupted at any event and goes on with the next.
type follower[T Object] struct {
	ix        *indexer.Indexer[T]
	resync    time.Duration
	bookmarks bool

	// Where it is. Only run touches these, one run at a time.
	view    *indexer.View[T] // pinned while it is being told
	resyncs bool             // view is told as Sync, not as Added
	after   string           // key of the last object told of view
	synced  bool
	skip    int    // events told of the next batch
	seen    uint64 // events of the next batch up to this version are not news
	next    time.Time

	position  atomic.Pointer[changelog.Position[indexer.Event[T]]]
	delivered atomic.Uint64
	hasSynced chan struct{} // closed once Synced has been told
}

func newFollower[T Object](ix *indexer.Indexer[T], resync time.Duration, bookmarks bool) *follower[T] {
	f := &follower[T]{ix: ix, resync: resync, bookmarks: bookmarks, hasSynced: make(chan struct{})}
	// From here on the log cannot run away from it.
	f.view = ix.Pin()
	f.position.Store(f.view.Tail())
	return f
}

// lag is the number of events in the log that have not been told yet.
func (f *follower[T]) lag() uint64 {
	if p := f.position.Load(); p != nil {
		return f.ix.Latest().Tail().Seq - p.Seq
	}
	return 0
}

// release lets go of what the follower holds. It cannot run again.
func (f *follower[T]) release() {
	if f.view != nil {
		f.view.Release()
		f.view = nil
	}
	f.position.Store(nil)
}

// run tells yield everything from where the follower is, waiting for news,
// until ctx ends or yield returns false; with drain, until there is no news.
func (f *follower[T]) run(ctx context.Context, drain bool, yield func(Event[T]) bool) {
	tell := func(e Event[T]) bool {
		f.delivered.Add(1)
		return yield(e) && ctx.Err() == nil
	}
	if f.resync > 0 && f.next.IsZero() {
		f.next = time.Now().Add(f.resync)
	}
	for ctx.Err() == nil {
		if f.view != nil && !f.snapshot(tell) {
			return
		}
		var due <-chan time.Time
		if f.resync > 0 {
			left := time.Until(f.next)
			if left <= 0 {
				f.next = time.Now().Add(f.resync)
				if !f.startResync(tell) {
					return
				}
				continue
			}
			due = time.After(left)
		}
		at := f.position.Load()
		if batch := at.Next(); batch != nil {
			if !f.batch(batch, tell) {
				return
			}
			continue
		}
		if drain {
			return
		}
		select {
		case <-at.Ready():
		case <-due:
		case <-ctx.Done():
		}
	}
}

// startResync pins a state to tell as Sync events. First the follower reads on
// to the place in the log that belongs to that state, so that no object goes
// back in time. It returns false if it was interrupted.
func (f *follower[T]) startResync(tell func(Event[T]) bool) bool {
	view := f.ix.Pin()
	for at := f.position.Load(); at != view.Tail(); at = f.position.Load() {
		batch, err := at.Wait(context.Background()) // it is there, or about to be linked
		if err != nil || !f.batch(batch, tell) {
			view.Release()
			return false
		}
	}
	f.view, f.resyncs, f.after = view, true, ""
	return true
}

// snapshot tells the pinned state. It returns false if it was interrupted.
func (f *follower[T]) snapshot(tell func(Event[T]) bool) bool {
	for key, o := range f.view.From("", f.after) {
		e := Event[T]{Type: Added, Object: o, InInitialList: true, version: f.view.ResourceVersion}
		if f.resyncs {
			e.Type, e.Old, e.InInitialList = Sync, o, false
		}
		f.after = key
		if !tell(e) {
			return false
		}
	}
	initial, synced, version := !f.resyncs, f.view.Synced, f.view.ResourceVersion
	f.view.Release()
	f.view, f.after = nil, ""
	if initial && synced {
		return f.tellSynced(version, tell)
	}
	return true
}

func (f *follower[T]) tellSynced(version uint64, tell func(Event[T]) bool) bool {
	if f.synced {
		return true
	}
	f.synced = true
	ok := tell(Event[T]{Type: Synced, Resumable: true, version: version})
	close(f.hasSynced)
	return ok
}

// batch tells what follows in the log, and moves on behind it. It returns false
// if it was interrupted.
func (f *follower[T]) batch(b *changelog.Batch[indexer.Event[T]], tell func(Event[T]) bool) bool {
	for f.skip < len(b.Events) {
		i := f.skip
		f.skip++
		e := event(&b.Events[i])
		if b.Kind == changelog.Changes {
			if e.version <= f.seen && f.seen != 0 {
				continue
			}
			// Two events of one version (an object that took another's name)
			// are resumable behind the second.
			e.Resumable = i+1 == len(b.Events) || b.Events[i+1].ResourceVersion != e.version
		} else {
			e.Resumable = i+1 == len(b.Events)
		}
		if !tell(e) {
			return false
		}
	}
	f.position.Store(b.End)
	f.skip, f.seen = 0, 0
	if b.Kind == changelog.Relist && !f.synced {
		return f.tellSynced(b.End.ResourceVersion, tell)
	}
	if f.bookmarks && len(b.Events) == 0 && b.Kind == changelog.Changes {
		return tell(Event[T]{Type: Bookmark, Resumable: true, version: b.End.ResourceVersion})
	}
	return true
}
