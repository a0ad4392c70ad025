package audit

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// Options of a [Log]. The zero value is usable.
type Options struct {
	// QueueBytes is how many bytes may wait to be written, and how many may be in the
	// middle of it. Events beyond that are dropped. 0 means 8 MiB, some ten thousand
	// events.
	QueueBytes int
	// FoldInterval is how often the counts of folded events are written. 0 means 10
	// seconds.
	FoldInterval time.Duration
	// Logger logs what is lost, and why. nil means slog.Default().
	Logger *slog.Logger
}

const (
	// writeBytes is how much is written at a time, if one event is not longer.
	writeBytes = 64 << 10
	// keptBytes is the largest buffer that an idle log keeps.
	keptBytes = 256 << 10
	// remindInterval is how often the log of the program repeats that events are lost.
	remindInterval = time.Minute
	// maxWait is how long an event waits for room in the queue, and maxWaiting how many
	// events may wait.
	maxWait, maxWaiting = time.Second, 1000
)

// errDropped is why an event is lost that did not fit in the queue.
var errDropped = errors.New("events come faster than they can be written")

// Log is an audit log. It is safe for concurrent use.
type Log struct {
	out       io.Writer
	opts      Options
	strangers strangers

	room    *semaphore.Weighted // in pending, in bytes
	waiting atomic.Int64        // events that wait for room
	stuck   atomic.Bool         // an event has waited in vain since the last write

	mu       sync.Mutex
	pending  []byte // whole lines
	spare    []byte // the other buffer
	closed   bool
	written  uint64
	dropped  uint64 // did not fit in the queue
	failed   uint64 // could not be written
	err      error  // of the last write
	reminded time.Time

	torn bool          // the last write ended within a line; for the writer alone
	wake chan struct{} // something is pending, or the log is closed
	done chan struct{} // the writer has ended
}

// New returns a log that writes to out, which the caller closes after [Log.Close].
func New(out io.Writer, opts Options) *Log {
	opts.QueueBytes = cmp.Or(opts.QueueBytes, 8<<20)
	opts.FoldInterval = cmp.Or(opts.FoldInterval, 10*time.Second)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	l := &Log{out: out, opts: opts, strangers: newStrangers(), room: semaphore.NewWeighted(int64(opts.QueueBytes)), wake: make(chan struct{}, 1), done: make(chan struct{})}
	go l.run()
	return l
}

// Write queues an event as it is now. If the queue is full, it waits for room for a
// second at most, and then drops the event. So a caller cannot push its events out of
// the log with a flood that a working disk can follow. Once an event was dropped, others
// are dropped at once until something has been written again.
func (l *Log) Write(e *auditv1.Event) { l.queue(encode(e), true) }

// WriteStranger queues the event of a refused request whose caller is not known. It
// never waits. Beyond some events a second, only the number of them is written, by
// address and status code.
func (l *Log) WriteStranger(e *auditv1.Event) {
	if l.strangers.admit(e) {
		l.queue(encode(e), false)
	}
}

func (l *Log) queue(line []byte, wait bool) {
	fits := l.reserve(int64(len(line)), wait)
	l.mu.Lock()
	if fits && l.closed {
		l.room.Release(int64(len(line)))
		fits = false
	}
	if fits {
		l.pending = append(l.pending, line...)
	} else {
		l.dropped++
	}
	l.mu.Unlock()
	if fits {
		l.signal()
	} else {
		l.remind(errDropped)
	}
}

// reserve takes room for a line in the queue, which the writer releases.
func (l *Log) reserve(size int64, wait bool) bool {
	if l.room.TryAcquire(size) {
		return true
	}
	if !wait || l.stuck.Load() || size > int64(l.opts.QueueBytes) {
		return false
	}
	defer l.waiting.Add(-1)
	if l.waiting.Add(1) > maxWaiting {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxWait)
	defer cancel()
	if l.room.Acquire(ctx, size) != nil {
		l.stuck.Store(true)
		return false
	}
	return true
}

func (l *Log) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// remind logs that events are lost, once in a while.
func (l *Log) remind(err error) {
	l.mu.Lock()
	now := time.Now()
	due, lost := now.Sub(l.reminded) >= remindInterval, l.dropped+l.failed
	if due {
		l.reminded = now
	}
	l.mu.Unlock()
	if due {
		l.opts.Logger.Error("events are missing in the audit log", "err", err, "missing", lost)
	}
}

// Close writes what is queued. If ctx ends first, it returns an error and what is left
// is lost. Events that come later are dropped.
func (l *Log) Close(ctx context.Context) error {
	for _, e := range l.strangers.counts() {
		l.Write(e)
	}
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write the rest of the audit log: %w", context.Cause(ctx))
	}
}

// run writes what is queued until the log is closed.
func (l *Log) run() {
	defer close(l.done)
	tick := time.NewTicker(l.opts.FoldInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
		case <-tick.C:
			for _, e := range l.strangers.counts() {
				l.Write(e)
			}
			continue
		}
		l.mu.Lock()
		lines, closed := l.pending, l.closed
		l.pending, l.spare = l.spare[:0], nil
		l.mu.Unlock()
		l.stuck.Store(false)
		l.room.Release(int64(len(lines)))
		l.write(lines)
		l.mu.Lock()
		if l.spare = lines[:0]; cap(lines) > keptBytes {
			l.spare = nil
		}
		l.mu.Unlock()
		if closed {
			return
		}
	}
}

// write writes lines, some at a time.
func (l *Log) write(lines []byte) {
	for len(lines) > 0 {
		n := len(lines)
		if n > writeBytes {
			if n = bytes.LastIndexByte(lines[:writeBytes], '\n') + 1; n == 0 {
				n = bytes.IndexByte(lines, '\n') + 1
			}
		}
		l.writeSome(lines[:n])
		lines = lines[n:]
	}
}

func (l *Log) writeSome(lines []byte) {
	var n int
	var err error
	if l.torn {
		_, err = l.out.Write([]byte{'\n'})
	}
	if err == nil {
		if n, err = l.out.Write(lines); err == nil && n < len(lines) {
			err = io.ErrShortWrite
		}
		l.torn = n > 0 && lines[n-1] != '\n'
	}
	whole, all := uint64(bytes.Count(lines[:n], []byte{'\n'})), uint64(bytes.Count(lines, []byte{'\n'}))
	l.mu.Lock()
	before := l.err
	l.err = err
	l.written += whole
	l.failed += all - whole
	lost := l.dropped + l.failed
	if before == nil && err != nil {
		l.reminded = time.Time{} // say so now
	}
	l.mu.Unlock()
	switch {
	case err != nil:
		l.remind(err)
	case before != nil:
		l.opts.Logger.Info("the audit log can be written again", "missing", lost)
	}
}

// Status is the state of a log.
type Status struct {
	// Written is the number of events that were written, Dropped of those that did not
	// fit in the queue, and Failed of those that could not be written.
	Written, Dropped, Failed uint64
	// Folded is the number of events of strangers that are only counted.
	Folded uint64
	// Queued is how many bytes wait to be written.
	Queued int
	// Err is the error of the last write; nil if it succeeded.
	Err error
}

// Status returns the state of the log.
func (l *Log) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Status{Written: l.written, Dropped: l.dropped, Failed: l.failed, Folded: l.strangers.total(), Queued: len(l.pending), Err: l.err}
}
