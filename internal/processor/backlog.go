package processor

import (
	"context"
	"sync"

	"github.com/tidings-io/tidings/internal/changelog"
	"github.com/tidings-io/tidings/internal/indexer"
	"github.com/tidings-io/tidings/internal/object"
)

// backlog reads the log on behalf of a follower that may be slow, or stuck, and
// keeps what waits for it. Past a limit it keeps only what the follower still
// has to know: the newest event of each object. Its memory is bounded by the
// number of objects, never by the number of events, so nothing that it hands
// over leads on into the log.
type backlog[T object.Object] struct {
	limit func() int

	mu      sync.Mutex
	at      *position[T] // everything before it has been read
	resumed resumption[T]
	queue   []*batch[T] // as read, while within the limit
	fold    *fold[T]    // what the queue became once over it
	n       int         // events in queue or fold
	taken   int         // events in the batch the follower has in hand
	folded  uint64
	wake    chan struct{} // capacity 1: something was added
}

func newBacklog[T object.Object](at *position[T], resumed resumption[T], limit func() int) *backlog[T] {
	return &backlog[T]{limit: limit, at: at, resumed: resumed, wake: make(chan struct{}, 1)}
}

func (b *backlog[T]) stats() (waiting, folded uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return uint64(b.n + b.taken), b.folded
}

func (b *backlog[T]) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue, b.fold, b.at, b.n, b.taken = nil, nil, nil, 0, 0
}

// read takes in what there is.
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

// where is the position that has been read up to.
func (b *backlog[T]) where() *position[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at
}

// add takes in a batch, under the lock.
func (b *backlog[T]) add(next *batch[T]) {
	b.at = next.End
	// What has been seen must not be folded: its end would seem to be the end of
	// something that has never been told of.
	next = b.resumed.news(next.Detached())
	waiting := b.n + len(next.Events)
	if next.Kind == changelog.Relist {
		waiting = b.n // however much a list brings to light: it tells of each object once
	}
	if b.fold == nil && waiting <= b.limit() {
		b.queue = append(b.queue, next)
		b.n += len(next.Events)
	} else {
		before := b.n + len(next.Events)
		if b.fold == nil {
			b.fold = newFold[T]()
			for _, queued := range b.queue {
				b.fold.add(queued)
			}
			b.queue = nil
		}
		b.fold.add(next)
		b.n = b.fold.len()
		b.folded += uint64(before - b.n)
	}
	select {
	case b.wake <- struct{}{}:
	default: // it has been said
	}
}

// ready can be received from when something was added.
func (b *backlog[T]) ready() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n > 0 || len(b.queue) > 0 || b.fold != nil {
		return closed
	}
	return b.wake
}

var closed = func() chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// take hands over what is to be told next, nil if nothing waits.
func (b *backlog[T]) take() *batch[T] {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
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
	b.taken = len(next.Events)
	return next
}

// takeFold hands over the fold as a batch, under the lock.
func (b *backlog[T]) takeFold() *batch[T] {
	next := b.fold.batch(b.at.Detached())
	b.fold, b.n, b.taken = nil, 0, len(next.Events)
	return next
}

// jump pins the newest state for a resync, and hands over all that leads to it.
func (b *backlog[T]) jump(ix *indexer.Indexer[T]) (*indexer.View[T], *batch[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken = 0
	now := ix.PinMoment()
	for b.at != now.Tail() {
		// It has been published, or is about to be linked.
		next, err := b.at.Wait(context.Background())
		if err != nil { // cannot be: that context does not end
			break
		}
		b.add(next)
	}
	var waiting *batch[T]
	if b.n > 0 || len(b.queue) > 0 || b.fold != nil {
		if b.fold == nil {
			b.fold = newFold[T]()
			for _, queued := range b.queue {
				b.fold.add(queued)
			}
			b.folded += uint64(b.n - b.fold.len())
			b.queue = nil
		}
		waiting = b.takeFold()
	}
	return now.View, waiting
}
