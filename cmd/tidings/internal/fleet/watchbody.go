package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/tidwall/gjson"

	"github.com/tidings-io/tidings/internal/object"
)

// decoder expands messages. It is safe for concurrent use.
var decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxDecoded)) // fails only for wrong options

const (
	// messagesWaiting is the number of messages that may wait for the reader of a watch.
	messagesWaiting = 32
	// readerPatience is how long the log waits for the reader of a watch.
	readerPatience = 30 * time.Second
)

// watchBody is the body of an answer to a watch.
type watchBody struct {
	ctx      context.Context
	log      *logReader
	feed     *followed
	at       position // up to which everything was passed; under log.mu
	chosen   uint64   // number of the last message that was passed, 0 if none; under log.mu
	messages chan message
	timeout  <-chan time.Time // nil: none

	once  sync.Once
	ended chan struct{}
	why   error // set before ended is closed

	// Of the goroutine that reads.
	taken   uint64 // number of the last message, 0 if none
	version uint64 // up to which everything was taken
	after   uint64 // events up to this resourceVersion are left out: a snapshot had them
	parts   []byte // of a message in several parts
	rest    []byte
	buf     *[]byte // that rest is in, if it is of the pool
	passing *mark   // the message that rest is of
	failed  error
}

// newWatchBody returns the body of a watch of a feed after a version.
func newWatchBody(ctx context.Context, log *logReader, f *followed, after uint64, timeout time.Duration) *watchBody {
	b := &watchBody{ctx: ctx, log: log, feed: f, version: after, after: after, messages: make(chan message, messagesWaiting), ended: make(chan struct{})}
	if timeout > 0 {
		b.timeout = time.After(timeout)
	}
	return b
}

// pass passes a message to the reader.
func (b *watchBody) pass(ctx context.Context, m message) {
	select {
	case b.messages <- m:
		return
	case <-b.ended:
		return
	default:
	}
	patience := time.NewTimer(readerPatience)
	defer patience.Stop()
	select {
	case b.messages <- m:
	case <-b.ended:
	case <-ctx.Done():
	case <-patience.C:
		b.end(errors.New("the events were not read"))
		b.log.leave(b)
	}
}

// end ends the body. Messages that were passed to it before are still read.
func (b *watchBody) end(why error) {
	b.once.Do(func() {
		b.why = why
		close(b.ended)
	})
}

// Close implements io.Closer.
func (b *watchBody) Close() error {
	b.end(io.ErrClosedPipe)
	b.log.leave(b)
	return nil
}

// Read implements io.Reader.
func (b *watchBody) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		if b.passing != nil {
			b.feed.add(*b.passing)
			b.passing = nil
		}
		buffers.put(b.buf)
		b.buf = nil
		if b.failed != nil {
			return 0, b.failed
		}
		var m message
		select {
		case m = <-b.messages:
		default:
			select {
			case m = <-b.messages:
			case <-b.ended:
				select {
				case m = <-b.messages:
				default:
					b.finish()
					b.fail(b.why)
					continue
				}
			case <-b.timeout:
				b.finish()
				b.failed = io.EOF
				continue
			case <-b.ctx.Done():
				return 0, context.Cause(b.ctx)
			}
		}
		if err := b.take(m); err != nil {
			b.fail(err)
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// finish notes how far the log was read, so that the next watch of a feed without changes need
// not read it again.
func (b *watchBody) finish() {
	if at, ok := b.log.reached(b); ok && len(b.parts) == 0 {
		b.feed.add(mark{b.version, at})
	}
}

// fail ends the body with an error. One that has a status is sent as an event.
func (b *watchBody) fail(err error) {
	if b.failed = err; b.failed == nil {
		b.failed = io.EOF
	}
	if s := (*statusError)(nil); errors.As(err, &s) {
		text, _ := json.Marshal(map[string]any{"type": "ERROR", "object": s.Status()}) // cannot fail
		b.rest, b.failed = append(text, '\n'), io.EOF
	}
}

// take makes the events of a message what is read next.
func (b *watchBody) take(m message) error {
	payload := m.payload
	b.taken = m.Number
	if len(b.parts) > 0 || m.more {
		if b.parts = append(b.parts, payload...); len(b.parts) > maxDecoded {
			return b.log.spoil(m, fmt.Errorf("the parts of message %s are too long", m.id()))
		}
		if m.more {
			return nil
		}
		payload, b.parts = b.parts, nil
	}
	b.buf = buffers.get()
	events, err := decoder.DecodeAll(payload, (*b.buf)[:0])
	if *b.buf = events; err != nil {
		return b.log.spoil(m, fmt.Errorf("message %s: %w", m.id(), err))
	}
	if m.first <= b.after {
		events = later(events, b.after)
	}
	b.rest, b.passing = events, &mark{m.last, m.position}
	b.version = max(b.version, m.last)
	return nil
}

// later returns the events after a version.
func later(events []byte, version uint64) (out []byte) {
	for line := range bytes.Lines(events) {
		if object.Version(gjson.GetBytes(line, "object.metadata.resourceVersion").Str) > version {
			out = append(out, line...)
		}
	}
	return out
}
