// Package changelog implements the log of changes that the subscribers of an
// informer read. It is a linked list of positions with immutable batches of
// events between them.
//
// A reader holds its position. Once the last reader has moved past a batch, the
// garbage collector frees it. So the log takes only the memory of what its
// slowest reader has not read, plus the retained window (see [New]) that lets
// readers resume from an earlier resourceVersion. It needs no channel, ring
// buffer or goroutine per event or per reader: readers that have caught up wait
// on one channel, which the next append closes.
package changelog

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidings-io/tidings/internal/broadcast"
)

// Kind says where a batch comes from.
type Kind uint8

const (
	// Changes were watched one by one. Each event has its own resourceVersion,
	// and a reader may stop and resume between any two of them.
	Changes Kind = iota
	// Relist holds the differences between the store and a complete list. Its
	// events are meaningful only together, at the version of the batch's End.
	Relist
	// Emptied holds the deletion of every object.
	Emptied
	// Folded is what remains of several batches for a reader that fell behind.
	// It is resumable at its end. It does not occur in a log.
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

// Detached returns the batch with an End that does not lead on into the log, for
// readers that must not keep the log alive. All callers get the same batch.
func (b *Batch[E]) Detached() *Batch[E] {
	if d := b.detached.Load(); d != nil {
		return d
	}
	b.detached.CompareAndSwap(nil, &Batch[E]{Events: b.Events, Kind: b.Kind, End: b.End.Detached()})
	return b.detached.Load()
}

// Detached returns a copy of the position that does not lead on into the log.
func (p *Position[E]) Detached() *Position[E] {
	return &Position[E]{ResourceVersion: p.ResourceVersion, Synced: p.Synced, Seq: p.Seq, At: p.At}
}

// Position is a position in the log. It keeps everything after it alive, and
// nothing before it.
type Position[E any] struct {
	// ResourceVersion of the store at this position.
	ResourceVersion uint64
	// Seq is the number of events before this position. The difference between
	// two positions is the lag between them.
	Seq uint64
	// Synced says that the store had a complete list at this position.
	Synced bool
	// At is when the batch before this position was appended.
	At time.Time

	next     atomic.Pointer[Batch[E]]
	appended broadcast.Signal // of next
}

// Next returns the next batch, or nil if there is none yet.
func (p *Position[E]) Next() *Batch[E] { return p.next.Load() }

// Wait waits for the next batch and returns it. If ctx ends first, Wait returns its
// cause.
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

// Ready returns a channel that is closed as soon as there is a next batch.
func (p *Position[E]) Ready() <-chan struct{} {
	ready := p.appended.Next()
	// The writer stores next before it notifies. If it notified before this
	// channel existed, next is visible here.
	if p.next.Load() != nil {
		p.appended.Notify()
	}
	return ready
}

// Log is the writer's end of the log. One goroutine appends; any number may
// read.
type Log[E any] struct {
	tail   *Position[E] // owned by the writer
	retain uint64

	mu     sync.Mutex // guards oldest
	oldest *Position[E]
}

// New returns an empty log. It keeps at least the last retain events, rounded
// up to whole batches, for [Log.Since]. Older events live only as long as a
// reader has yet to read them.
func New[E any](retain int) *Log[E] {
	p := &Position[E]{}
	return &Log[E]{tail: p, retain: uint64(max(retain, 0)), oldest: p}
}

// Tail returns the position at the end. Only the writer may call it; a reader
// gets its position together with the state that belongs to it.
func (l *Log[E]) Tail() *Position[E] { return l.tail }

// Append creates a batch at the tail. Readers do not see it until the writer
// calls announce, which it does after it has published the state at the batch's
// End. Nothing else may be appended before that.
func (l *Log[E]) Append(events []E, kind Kind, resourceVersion uint64, synced bool) (b *Batch[E], announce func()) {
	from := l.tail
	b = &Batch[E]{Events: events, Kind: kind, End: &Position[E]{
		ResourceVersion: resourceVersion,
		Seq:             from.Seq + uint64(len(events)),
		Synced:          synced,
		At:              time.Now(),
	}}
	l.tail = b.End
	return b, func() {
		from.next.Store(b)
		if resourceVersion < from.ResourceVersion {
			// The source went back in time, as after a restore. From now on a
			// version may mean a state from before that or one from after it.
			l.Forget()
		}
		l.prune(b.End)
		from.appended.Notify()
	}
}

// prune advances the start of the retained window. tail is the end of the log.
func (l *Log[E]) prune(tail *Position[E]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.oldest != tail {
		next := l.oldest.next.Load()
		// Nobody can resume from before the first list.
		if l.oldest.ResourceVersion != 0 && tail.Seq-next.End.Seq < l.retain {
			return
		}
		l.oldest = next.End
	}
}

// Forget drops the retained window: no reader can resume from before the
// present end of the log. Only the writer may call it.
func (l *Log[E]) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.oldest = l.tail
}

// Retained returns the number of events between the start of the retained window and a
// position.
func (l *Log[E]) Retained(tail *Position[E]) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return tail.Seq - min(l.oldest.Seq, tail.Seq)
}

// Since returns the position from which a reader that has seen everything up to
// resourceVersion goes on: the last position whose version is not greater. The
// next batch may begin with events that the reader has seen: those whose versions
// are not greater than resourceVersion.
//
// Since returns false if the log does not reach back to resourceVersion, or has
// not reached it yet, or if the version is from before the first list: the log
// does not know what happened before that. Nor does it know what happened between
// the versions of a relist and of the position before it: a reader that stopped
// there may have seen some of what the relist found.
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
			return p, next.Kind == Changes || p.ResourceVersion == resourceVersion
		}
		p = next.End
	}
}
