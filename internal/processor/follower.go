// Package processor tells handlers and loops what happens in a store, each at
// its own pace. It is what client-go's sharedProcessor is for, without a
// goroutine, a channel or a buffer per listener: all followers read one log.
package processor

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// Type says what an [Event] tells.
type Type uint8

// The first three are the changes of a store, the others what a follower adds.
const (
	Added    = Type(indexer.Added)
	Updated  = Type(indexer.Updated)
	Deleted  = Type(indexer.Deleted)
	Sync     = Deleted + 1 // the object is still there: the resync period is over
	Synced   = Deleted + 2 // the initial list has been told; no object
	Bookmark = Deleted + 3 // nothing happened up to Version; no object
)

// Event is one piece of news for a follower. It is a few words, since it is made
// for each follower anew; what it points at is shared, and must not be changed.
type Event[T object.Object] struct {
	// Event has the Object, its Old state, the ResourceVersion of the store once
	// it had happened, and whether it is Initial, Unseen or the Same. Never nil.
	*indexer.Event[T]
	Type      Type // instead of that of Event
	Resumable bool // a follower that comes back to ResourceVersion misses nothing
	Folded    bool // stands for several events, or comes out of turn among such
	// Seq is the number of changes of the store before this one, for Added,
	// Updated and Deleted from the log.
	Seq uint64
}

// Options of a follower. The zero value is usable.
type Options struct {
	Name      string        // for those who look at it
	Resync    time.Duration // 0: never
	Bookmarks bool
	// Fold is the number of events that may wait before they are folded to the
	// newest per object. 0: keep them all.
	Fold int
	// FoldBy, if not nil, says instead of Fold how many may wait, each time that
	// something comes.
	FoldBy func() int
	// News leaves out what there is at the beginning and begins with what
	// happens next.
	News bool
}

// Follower reads a store's news at its own pace: first everything there is,
// from a pinned snapshot, then the log from the very place where the snapshot
// ends. Nothing falls between the two and nothing comes twice. It can be
// interrupted at any event and goes on with the next.
type Follower[T object.Object] struct {
	ix   *indexer.Indexer[T]
	opts Options

	// Where it is. Only Run touches these, one run at a time.
	view     *indexer.View[T] // pinned while it is being told
	resyncs  bool             // view is told as Sync, not as Added
	after    string           // key of the last object told of view
	upcoming *indexer.View[T] // pinned, to be told as Sync once everything before it is told
	until    *position[T]     // where that is, unless current is all of it
	synced   bool
	current  *batch[T] // being told
	told     int       // events told of current
	resumed  resumption[T]
	next     time.Time // of the next resync
	count    uint64    // events told
	many     bool      // of what is being told now

	mu        sync.Mutex         // guards what follows, and orders it with the next batch
	requested *indexer.Moment[T] // pinned, by Resync
	wanted    bool               // as requested, of a follower that folds: nothing may keep the log for it
	released  bool
	asked     chan struct{} // capacity 1: look at requested or wanted

	position  atomic.Pointer[position[T]] // everything before it has been told; with a backlog detached from the log
	backlog   *backlog[T]                 // nil if nothing is folded
	delivered atomic.Uint64               // count, as others see it
	hasSynced chan struct{}               // closed once Synced has been told
}

type (
	batch[T object.Object]    = changelog.Batch[indexer.Event[T]]
	position[T object.Object] = changelog.Position[indexer.Event[T]]
)

// Follow returns a follower that begins with everything there is now. From here
// on the log cannot run away from it.
func Follow[T object.Object](ix *indexer.Indexer[T], opts Options) *Follower[T] {
	now := ix.PinMoment()
	f := newFollower(ix, opts, now.Tail(), 0)
	f.view = now.View
	if opts.News {
		f.view = nil
		now.Release()
	}
	return f
}

// Resume returns a follower that has seen everything up to version, or false if
// the log does not reach back that far or not yet forward to it.
func Resume[T object.Object](ix *indexer.Indexer[T], version uint64, opts Options) (*Follower[T], bool) {
	at, ok := ix.Since(version)
	if !ok {
		return nil, false
	}
	f := newFollower(ix, opts, at, version)
	f.synced = true
	close(f.hasSynced)
	return f, true
}

func newFollower[T object.Object](ix *indexer.Indexer[T], opts Options, at *position[T], seen uint64) *Follower[T] {
	f := &Follower[T]{ix: ix, opts: opts, resumed: resumedAt(at, seen), hasSynced: make(chan struct{}), asked: make(chan struct{}, 1)}
	f.position.Store(at)
	limit := opts.FoldBy
	if limit == nil && opts.Fold > 0 {
		limit = func() int { return opts.Fold }
	}
	if limit != nil {
		f.backlog = newBacklog(at, f.resumed, limit)
		f.resumed = resumption[T]{} // which is the backlog's to mind
		f.position.Store(at.Detached())
	}
	return f
}

// Status is what there is to know about a follower at one moment.
type Status struct {
	Delivered uint64 // events told; among many that are told in one go it moves by 64
	Lag       uint64 // events in the store's history that have not been told
	Backlog   uint64 // events that wait to be told: fewer than Lag after folding
	Folded    uint64 // events that were folded into others and will not be told
	Synced    bool   // the initial list has been told
}

// Status may be called at any time.
func (f *Follower[T]) Status() Status {
	s := Status{Delivered: f.delivered.Load()}
	select {
	case <-f.hasSynced:
		s.Synced = true
	default:
	}
	if p := f.position.Load(); p != nil {
		s.Lag = f.ix.Latest().Tail().Seq - p.Seq
		s.Backlog = s.Lag
	}
	if f.backlog != nil {
		s.Backlog, s.Folded = f.backlog.stats()
	}
	return s
}

// HasSynced is closed once the follower has been told the whole initial list.
func (f *Follower[T]) HasSynced() <-chan struct{} { return f.hasSynced }

// Release lets go of what the follower holds in the store. It must not run.
func (f *Follower[T]) Release() {
	for _, view := range []*indexer.View[T]{f.view, f.upcoming} {
		if view != nil {
			view.Release()
		}
	}
	f.view, f.upcoming, f.until, f.current = nil, nil, nil, nil
	f.position.Store(nil)
	f.mu.Lock()
	if f.requested != nil {
		f.requested.Release()
	}
	f.requested, f.released = nil, true
	f.mu.Unlock()
	if f.backlog != nil {
		f.backlog.release()
	}
}

// Resync has everything there is at this moment told again as Sync events, once
// all that led to it has been told. While one resync waits for its turn, asking
// for another does nothing. It may be called at any time.
func (f *Follower[T]) Resync() {
	f.mu.Lock()
	switch {
	case f.released:
	case f.backlog != nil:
		f.wanted = true
	case f.requested == nil:
		f.requested = f.ix.PinMoment()
	}
	f.mu.Unlock()
	select {
	case f.asked <- struct{}{}:
	default:
	}
}

// inOneGo is how far the number of events told may be behind.
const inOneGo = 64

// Run tells yield everything from where the follower is, waiting for news,
// until ctx ends or yield returns false; with drain, until there is no news. If
// yield panics, the next Run goes on with the next event.
func (f *Follower[T]) Run(ctx context.Context, drain bool, yield func(Event[T]) bool) {
	tell := func(e Event[T]) bool {
		f.counted()
		return yield(e) && ctx.Err() == nil
	}
	defer func() { f.delivered.Store(f.count) }()
	if f.backlog != nil {
		defer f.ix.Relay().Join(f.backlog.where(), f.backlog.read)()
	}
	if f.opts.Resync > 0 && f.next.IsZero() {
		f.next = time.Now().Add(f.opts.Resync)
	}
	for ctx.Err() == nil {
		if f.view != nil {
			if !f.tellView(tell) {
				return
			}
			continue
		}
		if f.current == nil {
			f.current = f.take()
		}
		if f.current != nil {
			if !f.tellBatch(ctx, yield, tell) {
				return
			}
			continue
		}
		if f.upcoming != nil {
			f.view, f.upcoming, f.until, f.resyncs, f.after = f.upcoming, nil, nil, true, ""
			continue
		}
		if drain && f.Status().Lag == 0 {
			return
		}
		var due <-chan time.Time
		if f.opts.Resync > 0 {
			left := time.Until(f.next)
			if left <= 0 {
				f.next = time.Now().Add(f.opts.Resync)
				f.beginResync()
				continue
			}
			due = time.After(left)
		}
		select {
		case <-f.ready():
		case <-f.asked:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// take returns the batch to tell next, nil if there is none at the moment.
func (f *Follower[T]) take() *batch[T] {
	at := f.position.Load()
	// Under the lock: what has been published before a Resync leads to the
	// state it pinned, and nothing that comes after may be told before that.
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wanted {
		f.wanted = false
		f.beginResync()
		return f.current
	}
	if f.upcoming == nil && f.requested != nil {
		f.upcoming, f.until, f.requested = f.requested.View, f.requested.Tail(), nil
	}
	if f.upcoming != nil {
		if f.until == nil || at == f.until {
			return nil
		}
		return f.direct(at)
	}
	if f.opts.Resync > 0 && !time.Now().Before(f.next) {
		return nil // a resync is due, also for followers that are always behind
	}
	if f.backlog != nil {
		return f.backlog.take()
	}
	return at.Next()
}

// direct reads the log up to the view that is to be told as Sync. What the
// follower waits for has been published, or is about to be linked.
func (f *Follower[T]) direct(at *position[T]) *batch[T] {
	b, err := at.Wait(context.Background())
	if err != nil { // cannot be: that context does not end
		return nil
	}
	return b
}

// ready is closed when take may have something.
func (f *Follower[T]) ready() <-chan struct{} {
	if f.backlog != nil {
		return f.backlog.ready()
	}
	return f.position.Load().Ready()
}

// beginResync pins a state to tell as Sync events. First the follower reads on
// to the place in the log that belongs to that state, so that no object goes
// back in time.
func (f *Follower[T]) beginResync() {
	if f.backlog == nil {
		now := f.ix.PinMoment()
		f.upcoming, f.until = now.View, now.Tail()
		return
	}
	f.upcoming, f.current = f.backlog.jump(f.ix)
}

// counted counts an event before it is told. Others see that at once, unless it is
// one of many: that would be a third of what it takes to tell one.
func (f *Follower[T]) counted() {
	if f.count++; !f.many || f.count%inOneGo == 0 {
		f.delivered.Store(f.count)
	}
}

// tellView tells the pinned state. It returns false if it was interrupted.
func (f *Follower[T]) tellView(tell func(Event[T]) bool) bool {
	f.many = f.view.Len() >= inOneGo
	var room []indexer.Event[T]
	for key, o := range f.view.From("", f.after) {
		if len(room) == 0 {
			room = make([]indexer.Event[T], min(f.view.Len(), inOneGo))
		}
		e := Event[T]{Event: &room[0], Type: Added}
		room = room[1:]
		e.Object, e.ResourceVersion, e.Initial = o, f.view.ResourceVersion, true
		if f.resyncs {
			e.Type, e.Old, e.Initial = Sync, o, false
		}
		f.after = key
		if !tell(e) {
			return false
		}
	}
	initial, synced, version := !f.resyncs, f.view.Synced, f.view.ResourceVersion
	f.view.Release()
	f.view, f.after = nil, ""
	return !initial || !synced || f.tellSynced(version, tell)
}

// about is an event that is of no object.
func about[T object.Object](t Type, version uint64) Event[T] {
	return Event[T]{Event: &indexer.Event[T]{ResourceVersion: version}, Type: t, Resumable: true}
}

func (f *Follower[T]) tellSynced(version uint64, tell func(Event[T]) bool) bool {
	if f.synced {
		return true
	}
	f.synced = true
	defer close(f.hasSynced) // also if it panics: it has been told
	f.many = false
	return tell(about[T](Synced, version))
}

// tellBatch tells the current batch, and moves on behind it. It returns false
// if it was interrupted. It does what tell does by itself, since it does it most.
func (f *Follower[T]) tellBatch(ctx context.Context, yield, tell func(Event[T]) bool) bool {
	f.current = f.resumed.news(f.current)
	b := f.current
	events, changes, folded := b.Events, b.Kind == changelog.Changes, b.Kind == changelog.Folded
	begin := b.End.Seq - uint64(len(events))
	f.many = len(events)-f.told >= inOneGo
	for f.told < len(events) {
		i := f.told
		f.told++
		e := &events[i]
		last := i+1 == len(events)
		// What has been told of a list or a fold is the state at the end, if the
		// end is a state of the source: not that of a store that was emptied, nor
		// one with changes behind the last event that were folded away.
		resumable := last && b.End.Synced && b.End.ResourceVersion == e.ResourceVersion
		if changes {
			// Two events of one version (an object that took another's name)
			// are resumable behind the second.
			resumable = last || events[i+1].ResourceVersion != e.ResourceVersion
		}
		f.counted()
		if !yield(Event[T]{Event: e, Type: Type(e.Type), Resumable: resumable, Folded: folded, Seq: begin + uint64(i)}) || ctx.Err() != nil {
			return false
		}
	}
	f.position.Store(b.End)
	f.current, f.told, f.many = nil, 0, false
	f.delivered.Store(f.count)
	if b.End.Synced && !f.synced {
		return f.tellSynced(b.End.ResourceVersion, tell)
	}
	if f.opts.Bookmarks && len(events) == 0 && changes {
		return tell(about[T](Bookmark, b.End.ResourceVersion))
	}
	return true
}
