package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// mostWaiting is the number of messages that may wait for the acknowledgement of a stream that one
// server keeps; see streamWriter.
const mostWaiting = 128

// fencedError says that the stream does not end where its writer left it: another writer
// has replaced it, or messages were lost.
type fencedError struct {
	stream string
	err    error
}

func (e *fencedError) Error() string {
	return fmt.Sprintf("stream %s does not end where it was left: %v", e.stream, e.err)
}

// streamWriter adds messages to a stream, each after the one before and after nothing else.
// Each message expects the sequence of the one before. That alone does not exclude a writer that
// was replaced: if several of its messages are on their way, one of them may arrive just
// when the other writer has reached the sequence that it expects. So each message expects the
// id of the one before, too, if one server keeps the stream. Several servers check the id only
// after they have agreed on the message, and a stream that has refused one then may accept
// nothing more after its leader was replaced (nats-server 2.15.2). There, only one message is on its
// way at a time: the sequence that it expects has passed once another writer has begun.
// One goroutine uses it.
type streamWriter struct {
	js      jetstream.JetStream
	stream  string
	last    uint64 // sequence of the last message that was sent
	lastID  string // its id; empty if the writer has sent none
	alone   bool   // one server keeps the stream
	waiting []sent // for their acknowledgement, in order
}

type sent struct {
	msg    *nats.Msg
	seq    uint64
	future jetstream.PubAckFuture
	stored func(sequence uint64) // may be nil
}

// newStreamWriter returns a writer that goes on at the end of a stream.
func newStreamWriter(ctx context.Context, js jetstream.JetStream, s jetstream.Stream) (*streamWriter, error) {
	info, err := s.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &streamWriter{js: js, stream: info.Config.Name, last: info.State.LastSeq, alone: info.Config.Replicas <= 1}, nil
}

// full reports whether no message may be sent now.
func (w *streamWriter) full() bool {
	return len(w.waiting) >= mostWaiting || !w.alone && len(w.waiting) > 0
}

// oldest returns the channels of the oldest message without an acknowledgement, nil if there
// is none.
func (w *streamWriter) oldest() (<-chan *jetstream.PubAck, <-chan error) {
	if len(w.waiting) == 0 {
		return nil, nil
	}
	return w.waiting[0].future.Ok(), w.waiting[0].future.Err()
}

// send sends a message, once it may. stored, if not nil, is called once it is stored.
func (w *streamWriter) send(ctx context.Context, msg *nats.Msg, stored func(sequence uint64)) error {
	if w.full() { // of several messages that must follow each other
		if err := w.settle(ctx); err != nil {
			return err
		}
	}
	s := sent{msg: msg, seq: w.last + 1, stored: stored}
	var err error
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequence(w.last)}
	if w.alone && w.lastID != "" {
		opts = append(opts, jetstream.WithExpectLastMsgID(w.lastID))
	}
	s.future, err = w.js.PublishMsgAsync(msg, opts...)
	w.last, w.lastID = w.last+1, msg.Header.Get(jetstream.MsgIDHeader)
	w.waiting = append(w.waiting, s)
	if err != nil { // it was not even sent
		return w.repeat(ctx, err)
	}
	return nil
}

// failed handles the failure of the oldest message.
func (w *streamWriter) failed(ctx context.Context, err error) error {
	w.waiting[0].future = nil
	return w.repeat(ctx, err)
}

// acknowledged handles the acknowledgement of the oldest message.
func (w *streamWriter) acknowledged(ack *jetstream.PubAck) error {
	s := w.waiting[0]
	if ack.Sequence != s.seq {
		return &fencedError{w.stream, fmt.Errorf("message %d was stored as %d", s.seq, ack.Sequence)}
	}
	w.waiting[0] = sent{}
	w.waiting = w.waiting[1:]
	if s.stored != nil {
		s.stored(s.seq)
	}
	return nil
}

// settle waits until everything that was sent is stored.
func (w *streamWriter) settle(ctx context.Context) error {
	for len(w.waiting) > 0 {
		var err error
		if w.waiting[0].future == nil { // an earlier call was interrupted
			if err = w.repeat(ctx, errInterrupted); err != nil {
				return err
			}
			continue
		}
		ok, fail := w.oldest()
		select {
		case ack := <-ok:
			err = w.acknowledged(ack)
		case failed := <-fail:
			err = w.failed(ctx, failed)
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var errInterrupted = errors.New("publishing was interrupted")

// repeat sends what is not known to be stored once more, in order, until the stream has it.
// It fails if the stream has gone on without them.
func (w *streamWriter) repeat(ctx context.Context, first error) error {
	for _, s := range w.waiting {
		if s.future == nil {
			continue
		}
		select { // one of them comes, a timeout at the latest
		case <-s.future.Ok():
		case <-s.future.Err():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for len(w.waiting) > 0 {
		w.waiting[0].future = nil
		ack, err := w.again(ctx, w.waiting[0])
		if err != nil {
			return fmt.Errorf("%w (after: %w)", err, first)
		}
		if err := w.acknowledged(ack); err != nil {
			return err
		}
	}
	return nil
}

// mostLooks is how often the writer looks for a message in the stream.
const mostLooks = 2

// again sends one message until the stream answers.
func (w *streamWriter) again(ctx context.Context, s sent) (*jetstream.PubAck, error) {
	msg := &nats.Msg{Subject: s.msg.Subject, Header: s.msg.Header, Data: s.msg.Data}
	looks := 0
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		ack, err := w.js.PublishMsg(ctx, msg, jetstream.WithRetryAttempts(0))
		if err == nil {
			return ack, nil
		}
		if isWrongLast(err) {
			looks++
			if stored, looked := w.stored(ctx, s); stored {
				return &jetstream.PubAck{Stream: w.stream, Sequence: s.seq, Duplicate: true}, nil
			} else if looked == nil || looks == mostLooks { // the credentials may not permit to look
				return nil, &fencedError{w.stream, err}
			}
		}
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			if _, gone := w.js.Stream(ctx, w.stream); errors.Is(gone, jetstream.ErrStreamNotFound) {
				return nil, &fencedError{w.stream, gone}
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

// stored reports whether a message is in the stream although its acknowledgement was lost. A
// server that keeps a stream alone checks the expected sequence before the message id, so it
// does not say that a message is a duplicate.
func (w *streamWriter) stored(ctx context.Context, s sent) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := w.js.Stream(ctx, w.stream)
	if err != nil {
		return false, err
	}
	has, err := stream.GetMsg(ctx, s.seq)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return has.Header.Get(jetstream.MsgIDHeader) == s.msg.Header.Get(jetstream.MsgIDHeader), nil
}

// wrongLastID is the code of the error of a stream whose last message has another id.
const wrongLastID = 10070

// isWrongLast reports whether a stream does not end where a message expects it to.
func isWrongLast(err error) bool {
	api := (*jetstream.APIError)(nil)
	return errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant || api.ErrorCode == wrongLastID)
}
