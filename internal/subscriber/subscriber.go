// Package subscriber delivers the events of a store to handlers, iterators and
// watches, to each at its own pace. It does what client-go's sharedProcessor does,
// without a goroutine, a channel or a buffer per listener: all subscribers read
// one log.
package subscriber

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// Type is the type of an [Event].
type Type uint8

// The first three are changes of the store. Subscribers add the others.
const (
	Added    = Type(indexer.Added)
	Updated  = Type(indexer.Updated)
	Deleted  = Type(indexer.Deleted)
	Sync     = Deleted + 1 // a resync: the object as it is
	Synced   = Deleted + 2 // the initial list has been delivered; no object
	Bookmark = Deleted + 3 // nothing happened up to ResourceVersion; no object
)

// Event is an event as one subscriber gets it. It is a few words long, since it is
// made for each subscriber. What it points at is shared and must not be modified.
type Event[T object.Object] struct {
	// Event has the Object, its Old state, the ResourceVersion of the store after
	// the event, and the flags Initial, Unseen and Same. It is never nil.
	*indexer.Event[T]
	Type      Type // overrides that of Event
	Resumable bool // a subscriber that resumes at ResourceVersion misses nothing
	Folded    bool // stands for several events, or comes out of order among such
	Relist    bool // found by a list, not by a watch
	// Seq is the number of events of the store before this one, for Added, Updated
	// and Deleted from the log.
	Seq uint64
}

// Options of a subscriber. The zero value is ready to use.
type Options struct {
	Name      string        // for monitoring
	Resync    time.Duration // 0: never
	Bookmarks bool
	// Fold is the number of events that may wait before they are folded to the
	// newest of each object. 0: never fold.
	Fold int
	// FoldBy, if not nil, replaces Fold by a number that may change. It is called
	// when batches are added to the backlog.
	FoldBy func() int
	// SkipInitial skips the objects that exist already: the first event is the
	// next change.
	SkipInitial bool
}

// Subscriber reads the events of a store at its own pace: first the objects of a
// pinned view, then the log from the view's position. It misses nothing and
// delivers nothing twice. It may be interrupted at any event, and goes on with the
// next one.
type Subscriber[T object.Object] struct {
	ix   *indexer.Indexer[T]
	opts Options

	// Only Run uses these. At most one Run is active.
	view       *indexer.View[T] // pinned while it is being delivered
	resync     bool             // view is delivered as Sync, not as Added
	after      string           // key of the last object of view that was delivered
	nextView   *indexer.View[T] // pinned, to be delivered as Sync after everything before it
	nextTail   *position[T]     // its position; nil if current leads to it
	synced     bool
	current    *batch[T] // being delivered
	done       int       // events of current that were delivered
	resumed    resumption[T]
	nextResync time.Time
	count      uint64 // events delivered
	skip       uint64 // delivered is updated when these bits of count are 0
	measured   time.Time

	mu             sync.Mutex         // guards what follows, and orders it with the next batch
	resyncCursor   *indexer.Cursor[T] // pinned by Resync
	resyncRequired bool               // replaces resyncCursor if events are folded: nothing may keep the log alive
	released       bool
	part           part[T]
	requested      chan struct{} // capacity 1: Resync was called

	position  atomic.Pointer[position[T]] // everything before it was delivered; detached from the log if there is a backlog
	backlog   *backlog[T]                 // nil unless events are folded
	delivered atomic.Uint64               // count, for Status, see countEvery
	hasSynced chan struct{}               // closed once Synced was delivered
}

type (
	batch[T object.Object]    = changelog.Batch[indexer.Event[T]]
	position[T object.Object] = changelog.Position[indexer.Event[T]]
)

// Subscribe returns a subscriber that begins with the objects that exist now. From
// now on the log is kept for it until [Subscriber.Release].
func Subscribe[T object.Object](ix *indexer.Indexer[T], opts Options) *Subscriber[T] {
	now := ix.PinCursor()
	s := newSubscriber(ix, opts, now.Tail(), 0)
	if opts.SkipInitial {
		now.Release()
		return s
	}
	s.view = now.View
	s.part = part[T]{events: s.view.Len(), since: time.Now(), view: true}
	return s
}

// Resume returns a subscriber that has seen everything up to version. It returns
// false if the log does not reach back to version, or has not reached it yet.
func Resume[T object.Object](ix *indexer.Indexer[T], version uint64, opts Options) (*Subscriber[T], bool) {
	at, ok := ix.Since(version)
	if !ok {
		return nil, false
	}
	s := newSubscriber(ix, opts, at, version)
	s.synced = true
	close(s.hasSynced)
	return s, true
}

func newSubscriber[T object.Object](ix *indexer.Indexer[T], opts Options, at *position[T], seen uint64) *Subscriber[T] {
	s := &Subscriber[T]{ix: ix, opts: opts, resumed: resumption[T]{seen}, hasSynced: make(chan struct{}), requested: make(chan struct{}, 1)}
	s.position.Store(at)
	limit := opts.FoldBy
	if limit == nil && opts.Fold > 0 {
		limit = func() int { return opts.Fold }
	}
	if limit != nil {
		s.backlog = newBacklog(at, s.resumed, limit)
		s.resumed = resumption[T]{} // the backlog handles it
		s.position.Store(at.Detached())
	}
	return s
}

// HasSynced returns a channel that is closed once the whole initial list was
// delivered.
func (s *Subscriber[T]) HasSynced() <-chan struct{} { return s.hasSynced }

// Release releases what the subscriber keeps in the store. It must not be called
// during Run.
func (s *Subscriber[T]) Release() {
	for _, view := range []*indexer.View[T]{s.view, s.nextView} {
		if view != nil {
			view.Release()
		}
	}
	s.view, s.nextView, s.nextTail, s.current = nil, nil, nil, nil
	s.position.Store(nil)
	s.mu.Lock()
	if s.resyncCursor != nil {
		s.resyncCursor.Release()
	}
	s.resyncCursor, s.released, s.part = nil, true, part[T]{}
	s.mu.Unlock()
	if s.backlog != nil {
		s.backlog.release()
	}
}

// Resync makes the subscriber deliver every object that exists now as a Sync event,
// after all events that led to that state. It does nothing while an earlier Resync
// waits for its turn. It may be called at any time.
func (s *Subscriber[T]) Resync() {
	s.mu.Lock()
	switch {
	case s.released:
	case s.backlog != nil:
		s.resyncRequired = true
	case s.resyncCursor == nil:
		s.resyncCursor = s.ix.PinCursor()
	}
	s.mu.Unlock()
	select {
	case s.requested <- struct{}{}:
	default:
	}
}

// Run calls yield with each event in turn and waits for more, until ctx ends or
// yield returns false. With drain, it returns when there are no more events. If
// yield panics, the next Run goes on with the next event.
func (s *Subscriber[T]) Run(ctx context.Context, drain bool, yield func(Event[T]) bool) {
	deliver := func(e Event[T]) bool {
		s.addDelivered()
		return yield(e) && ctx.Err() == nil
	}
	defer func() { s.delivered.Store(s.count) }()
	if s.backlog != nil {
		defer s.ix.Relay().Join(s.backlog.position(), s.backlog.read)()
	}
	if s.opts.Resync > 0 && s.nextResync.IsZero() {
		s.nextResync = time.Now().Add(s.opts.Resync)
	}
	for ctx.Err() == nil {
		if s.view != nil {
			if !s.deliverView(deliver) {
				return
			}
			continue
		}
		if s.current == nil {
			s.current = s.take()
		}
		if s.current != nil {
			if !s.deliverBatch(ctx, yield, deliver) {
				return
			}
			continue
		}
		if s.nextView != nil {
			s.view, s.nextView, s.nextTail, s.resync, s.after = s.nextView, nil, nil, true, ""
			s.begin(part[T]{events: s.view.Len(), since: time.Now(), view: true})
			continue
		}
		if drain && s.Status().Lag == 0 {
			return
		}
		var due <-chan time.Time
		if s.opts.Resync > 0 {
			left := time.Until(s.nextResync)
			if left <= 0 {
				s.nextResync = time.Now().Add(s.opts.Resync)
				s.mu.Lock()
				s.beginResync()
				s.mu.Unlock()
				continue
			}
			due = time.After(left)
		}
		select {
		case <-s.ready():
		case <-s.requested:
		case <-due:
		case <-ctx.Done():
		}
	}
}

// take returns the next batch to deliver, or nil if there is none now.
func (s *Subscriber[T]) take() *batch[T] {
	// Under the lock: what was published before a Resync leads to the state that
	// Resync pinned, and later events must not be delivered before that state.
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next()
	if next != nil {
		next = s.resumed.trim(next)
		s.part = part[T]{base: s.count, events: len(next.Events), since: next.End.At, end: next.End}
	}
	return next
}

// next is take without the note for Status. The lock is held.
func (s *Subscriber[T]) next() *batch[T] {
	at := s.position.Load()
	if s.resyncRequired {
		s.resyncRequired = false
		s.beginResync()
		return s.current
	}
	if s.nextView == nil && s.resyncCursor != nil {
		s.nextView, s.nextTail, s.resyncCursor = s.resyncCursor.View, s.resyncCursor.Tail(), nil
	}
	if s.nextView != nil {
		if s.nextTail == nil || at == s.nextTail {
			return nil
		}
		return wait(at)
	}
	if s.opts.Resync > 0 && !time.Now().Before(s.nextResync) {
		return nil // a resync is due, also for a subscriber that is always behind
	}
	if s.backlog != nil {
		return s.backlog.take()
	}
	return at.Next()
}

// wait returns the batch after at. The caller has pinned a View with a later
// position, so the batch has been linked or is about to be.
func wait[T object.Object](at *position[T]) *batch[T] {
	b, err := at.Wait(context.Background())
	if err != nil { // cannot happen: the context does not end
		return nil
	}
	return b
}

// ready returns a channel that is closed, or can be received from, when take may
// have a batch.
func (s *Subscriber[T]) ready() <-chan struct{} {
	if s.backlog != nil {
		return s.backlog.ready()
	}
	return s.position.Load().Ready()
}

// beginResync pins a View to deliver as Sync events. Before that, the subscriber
// reads on to the View's position, so that no object goes back in time. The lock is
// held.
func (s *Subscriber[T]) beginResync() {
	if s.backlog == nil {
		now := s.ix.PinCursor()
		s.nextView, s.nextTail = now.View, now.Tail()
		return
	}
	s.nextView, s.current = s.backlog.takeAll(s.ix)
	if b := s.current; b != nil {
		s.part = part[T]{base: s.count, events: len(b.Events), since: b.End.At, end: b.End}
	}
}

// deliverView delivers the rest of the pinned View. It returns false if it was
// interrupted.
func (s *Subscriber[T]) deliverView(deliver func(Event[T]) bool) bool {
	var events []indexer.Event[T] // allocated together
	for key, o := range s.view.From("", s.after) {
		if len(events) == 0 {
			events = make([]indexer.Event[T], min(s.view.Len(), countEvery))
		}
		e := Event[T]{Event: &events[0], Type: Added}
		events = events[1:]
		e.Object, e.ResourceVersion, e.Initial = o, s.view.ResourceVersion, true
		if s.resync {
			e.Type, e.Old, e.Initial = Sync, o, false
		}
		s.after = key
		if !deliver(e) {
			return false
		}
	}
	initial, synced, version := !s.resync, s.view.Synced, s.view.ResourceVersion
	s.view.Release()
	s.view, s.after = nil, ""
	s.begin(part[T]{})
	return !initial || !synced || s.deliverSynced(version, deliver)
}

// objectless returns an event without an object.
func objectless[T object.Object](t Type, version uint64) Event[T] {
	return Event[T]{Event: &indexer.Event[T]{ResourceVersion: version}, Type: t, Resumable: true}
}

func (s *Subscriber[T]) deliverSynced(version uint64, deliver func(Event[T]) bool) bool {
	if s.synced {
		return true
	}
	s.synced = true
	defer close(s.hasSynced) // even if yield panics: the event was delivered
	return deliver(objectless[T](Synced, version))
}

// deliverBatch delivers the rest of the current batch and moves past it. It returns
// false if it was interrupted. It repeats what deliver does, since this is the
// hottest loop.
func (s *Subscriber[T]) deliverBatch(ctx context.Context, yield, deliver func(Event[T]) bool) bool {
	b := s.current
	events, changes, folded, relist := b.Events, b.Kind == changelog.Changes, b.Kind == changelog.Folded, b.Kind == changelog.Relist
	begin := b.End.Seq - uint64(len(events))
	for s.done < len(events) {
		i := s.done
		s.done++
		e := &events[i]
		last := i+1 == len(events)
		// The events of a relist or a fold lead to the state at the end of the batch,
		// so only the last can be resumable. It is not if the store was emptied, since
		// the end is not a state of the source then, or if later events were folded
		// away.
		resumable := last && b.End.Synced && b.End.ResourceVersion == e.ResourceVersion
		if changes {
			// Two events of one version, where an object took the name of another,
			// are resumable after the second.
			resumable = last || events[i+1].ResourceVersion != e.ResourceVersion
		}
		s.addDelivered()
		if !yield(Event[T]{Event: e, Type: Type(e.Type), Resumable: resumable, Folded: folded, Relist: relist, Seq: begin + uint64(i)}) || ctx.Err() != nil {
			return false
		}
	}
	s.publishCount()
	s.position.Store(b.End)
	s.current, s.done, s.skip = nil, 0, 0
	if b.End.Synced && !s.synced {
		return s.deliverSynced(b.End.ResourceVersion, deliver)
	}
	if s.opts.Bookmarks && len(events) == 0 && (changes || relist && b.End.Synced) {
		e := objectless[T](Bookmark, b.End.ResourceVersion)
		e.Relist = relist
		return deliver(e)
	}
	return true
}
