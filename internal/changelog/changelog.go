// Package changelog holds the log of changes that everyone who follows an
// informer reads: a linked list of positions with immutable batches of events
// between them.
//
// Whoever reads the log holds the position it has come to. When the last
// reader moves on, the garbage collector takes what lies behind, so the log
// costs what its slowest reader is late by and nothing else; a retained window
// beyond that (see [New]) lets a reader come back to an earlier
// resourceVersion. There is no channel, ring or goroutine per event or per
// reader: readers that have caught up wait on one channel that the next append
// closes.
package changelog

import (
	"context"
	"sync"
	"sync/atomic"
)

// Kind says where a batch comes from.
type Kind uint8

const (
	// Changes were watched one by one: each event has a resourceVersion of its
	// own and a reader may stop and resume between any two of them.
	Changes Kind = iota
	// Relist holds the differences between the store and a complete list. Its
	// events mean something only together, at the version of the batch's End.
	Relist
	// Emptied holds the deletion of everything, when a store is emptied.
	Emptied
	// Folded is what is left of several batches for a reader that fell behind;
	// there are none in a log. It is resumable at its end.
	Folded
)

// Batch is a run of events that became visible together. It is immutable.
type Batch[E any] struct {
	// Events in the order in which they happened. May be empty: a bookmark
	// advances the resourceVersion without an event.
	Events []E
	Kind   Kind
	// End is the position after the last event.
	End *Position[E]

	detached atomic.Pointer[Batch[E]]
}

// Detached is the batch for those who must not keep what follows it: its End does
// not lead on into the log. It is the same for all who ask.
func (b *Batch[E]) Detached() *Batch[E] {
	if d := b.detached.Load(); d != nil {
		return d
	}
	b.detached.CompareAndSwap(nil, &Batch[E]{Events: b.Events, Kind: b.Kind, End: b.End.Detached()})
	return b.detached.Load()
}

// Detached is the position without what follows it.
func (p *Position[E]) Detached() *Position[E] {
	return &Position[E]{ResourceVersion: p.ResourceVersion, Synced: p.Synced, Seq: p.Seq}
}

// Position is a place in the log. It keeps what follows it alive, and nothing
// of what came before.
type Position[E any] struct {
	// ResourceVersion of the store at this position.
	ResourceVersion uint64
	// Seq is the number of events before this position; the difference between
	// two positions is the lag between them.
	Seq uint64
	// Synced says that the store had a complete list at this position.
	Synced bool

	next atomic.Pointer[Batch[E]]
	// wake is made by the first reader that has to wait here, and closed by
	// the writer: positions nobody waits at cost no channel.
	wake atomic.Pointer[chan struct{}]
}

// Next is the batch that follows, or nil if there is none yet.
func (p *Position[E]) Next() *Batch[E] { return p.next.Load() }

// Wait returns the batch that follows, waiting for it if need be. The error is
// the context's cause.
func (p *Position[E]) Wait(ctx context.Context) (*Batch[E], error) {
	for {
		if next := p.next.Load(); next != nil {
			return next, nil
		}
		select {
		case <-p.Ready():
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Ready is closed as soon as something follows.
func (p *Position[E]) Ready() <-chan struct{} {
	wake := p.wake.Load()
	if wake == nil {
		ch := make(chan struct{})
		if p.wake.CompareAndSwap(nil, &ch) {
			wake = &ch
		} else {
			wake = p.wake.Load()
		}
	}
	// The writer stores next before it looks for a channel to close. Had it
	// looked before ours was there, next is visible here.
	if p.next.Load() != nil {
		p.closeWake()
	}
	return *wake
}

// closeWake closes the channel that readers wait on, if there is one, once.
func (p *Position[E]) closeWake() {
	if wake := p.wake.Load(); wake != nil && wake != closedWake {
		if p.wake.CompareAndSwap(wake, closedWake) {
			close(*wake)
		}
	}
}

// closedWake stands in for a channel that has been closed.
var closedWake = func() *chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return &ch
}()

// Log is the writer's end. One goroutine appends; any number may read.
type Log[E any] struct {
	tail   *Position[E] // the writer's own
	retain uint64

	mu     sync.Mutex // guards oldest
	oldest *Position[E]
}

// New returns an empty log. It keeps at least the last retain events, rounded
// up to whole batches, for [Log.Since]; others only while somebody reads them.
func New[E any](retain int) *Log[E] {
	p := &Position[E]{}
	return &Log[E]{tail: p, retain: uint64(max(retain, 0)), oldest: p}
}

// Tail is the position after everything. Only the writer may call it; readers
// get theirs with the state that belongs to it.
func (l *Log[E]) Tail() *Position[E] { return l.tail }

// Append prepares a batch behind the tail and returns it. Readers do not see
// it until the writer, having published the state at its End, calls the
// announce function. Nothing may be appended before that.
func (l *Log[E]) Append(events []E, kind Kind, resourceVersion uint64, synced bool) (b *Batch[E], announce func()) {
	from := l.tail
	b = &Batch[E]{Events: events, Kind: kind, End: &Position[E]{
		ResourceVersion: resourceVersion,
		Seq:             from.Seq + uint64(len(events)),
		Synced:          synced,
	}}
	l.tail = b.End
	return b, func() {
		from.next.Store(b)
		if resourceVersion < from.ResourceVersion {
			// The source went back in time, as after a restore. From now on a
			// number may mean a state from before that or one from after.
			l.Forget()
		}
		l.prune(b.End)
		from.closeWake()
	}
}

// prune moves the retained window up behind tail.
func (l *Log[E]) prune(tail *Position[E]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.oldest != tail {
		next := l.oldest.next.Load()
		// Nobody can come back to a time before the first list.
		if l.oldest.ResourceVersion != 0 && tail.Seq-next.End.Seq < l.retain {
			return
		}
		l.oldest = next.End
	}
}

// Forget gives up the retained window: nothing that has been appended so far
// can be resumed from any more. Only the writer may call it.
func (l *Log[E]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest = l.tail
}

// Since finds where a reader that has seen everything up to resourceVersion
// goes on: the last position of at most that version. If the batch that
// follows is of kind Changes it may begin with events the reader has seen,
// which have versions of their own to tell.
//
// It returns false if the log no longer reaches back that far, or not yet
// forward to it, or if the version is of a time before the first list, of which
// the log cannot know what happened.
func (l *Log[E]) Since(resourceVersion uint64) (*Position[E], bool) {
	l.mu.Lock()
	p := l.oldest
	l.mu.Unlock()
	if p.ResourceVersion == 0 || resourceVersion < p.ResourceVersion {
		return nil, false
	}
	for {
		next := p.next.Load()
		if next == nil {
			return p, p.ResourceVersion == resourceVersion
		}
		if next.End.ResourceVersion > resourceVersion {
			return p, true
		}
		p = next.End
	}
}
