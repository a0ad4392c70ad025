package subscriber

import (
	"sync"
	"time"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// backlog reads the log on behalf of a subscriber that may be slow or stuck, and
// keeps the events that wait for it. Past a limit it keeps only the newest event of
// each object, which is all the subscriber still needs. Its memory is bounded by
// the number of objects, not of events, so the batches it returns are detached from
// the log.
type backlog[T object.Object] struct {
	limit func() int

	mu      sync.Mutex
	at      *position[T] // everything before it was read
	resumed resumption[T]
	queue   []*batch[T] // as read, up to the limit
	fold    *fold[T]    // replaces queue past the limit
	n       int         // events in queue or fold
	folded  uint64
	wake    chan struct{} // capacity 1: something was added
}

func newBacklog[T object.Object](at *position[T], resumed resumption[T], limit func() int) *backlog[T] {
	return &backlog[T]{limit: limit, at: at, resumed: resumed, wake: make(chan struct{}, 1)}
}

// stats returns the number of events that wait, when the oldest of them came, and the
// number of events folded so far.
func (b *backlog[T]) stats() (waiting uint64, since time.Time, folded uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fold != nil {
		since = b.fold.since
	}
	for _, queued := range b.queue {
		if len(queued.Events) > 0 {
			since = queued.End.At
			break
		}
	}
	return uint64(b.n), since, b.folded
}

func (b *backlog[T]) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.fold, b.at, b.n = nil, nil, nil, 0
}

// read adds every batch that is in the log and was not read yet.
func (b *backlog[T]) read() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.at != nil {
		next := b.at.Next()
		if next == nil {
			return
		}
		b.add(next)
	}
}

// position returns the position up to which the log was read.
func (b *backlog[T]) position() *position[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// add adds a batch. The caller holds the lock.
func (b *backlog[T]) add(next *batch[T]) {
	b.at = next.End
	// Events that the subscriber has seen must not be folded: their end would pass
	// for the end of something that was never delivered.
	next = b.resumed.trim(next.Detached())
	waiting := b.n + len(next.Events)
	if next.Kind == changelog.Relist {
		waiting = b.n // a relist does not count: it has at most one event per object
	}
	if b.fold == nil && waiting <= b.limit() {
		b.queue = append(b.queue, next)
		b.n += len(next.Events)
	} else {
		before := b.n + len(next.Events)
		b.foldQueue()
		b.fold.add(next)
		b.n = b.fold.len()
		b.folded += uint64(before - b.n)
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// foldQueue makes a fold of the queue, if there is no fold yet.
func (b *backlog[T]) foldQueue() {
	if b.fold != nil {
		return
	}
	b.fold = newFold[T]()
	for _, queued := range b.queue {
		b.fold.add(queued)
	}
	b.queue = nil
}

func (b *backlog[T]) empty() bool { return b.n == 0 && len(b.queue) == 0 && b.fold == nil }

// ready returns a channel that can be received from when the backlog is not empty.
func (b *backlog[T]) ready() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.empty() {
		return closed
	}
	return b.wake
}

var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// take removes and returns the next batch, or nil if there is none.
func (b *backlog[T]) take() *batch[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fold != nil {
		return b.takeFold()
	}
	if len(b.queue) == 0 {
		return nil
	}
	next := b.queue[0]
	b.queue[0] = nil
	b.queue = b.queue[1:]
	b.n -= len(next.Events)
	return next
}

// takeFold removes the fold and returns it as a batch. The caller holds the lock.
func (b *backlog[T]) takeFold() *batch[T] {
	end := b.at.Detached()
	end.At = b.fold.since
	next := b.fold.batch(end)
	b.fold, b.n = nil, 0
	return next
}

// takeAll pins the newest View for a resync, and removes and returns all events that
// lead to it as one batch, or nil if there are none.
func (b *backlog[T]) takeAll(ix *indexer.Indexer[T]) (*indexer.View[T], *batch[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := ix.PinCursor()
	for b.at != now.Tail() {
		next := wait(b.at)
		if next == nil {
			break
		}
		b.add(next)
	}
	if b.empty() {
		return now.View, nil
	}
	before := b.n
	b.foldQueue()
	b.folded += uint64(before - b.fold.len())
	return now.View, b.takeFold()
}
