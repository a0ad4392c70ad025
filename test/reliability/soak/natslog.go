package soak

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// auditEvery is the time between two looks at the whole log.
const auditEvery = 5 * time.Second

// auditLog checks from time to time that each epoch of the log is in one piece: nothing was added to
// it after another one has begun.
func (f *fleet) auditLog(ctx context.Context) error {
	for Sleep(ctx, auditEvery) {
		patience, cancel := context.WithTimeout(ctx, auditEvery)
		mixed, err := f.mixed(patience)
		cancel()
		switch {
		case err != nil: // the stream is away
		case mixed != "":
			f.report.mismatch("log", mixed, nil)
		default:
			f.report.count("log of whole epochs", 1)
		}
	}
	return nil
}

// mixed reads the log. It returns what is wrong with it, "" for nothing.
func (f *fleet) mixed(ctx context.Context) (string, error) {
	stream, err := f.brokers.js.Stream(ctx, logStream)
	if err != nil {
		return "", err
	}
	last := stream.CachedInfo().State.LastSeq
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{HeadersOnly: true})
	if err != nil {
		return "", err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return "", err
	}
	defer messages.Stop()
	now, over := "", map[string]uint64{}
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return "", err
		}
		meta, err := m.Metadata()
		if err != nil {
			return "", err
		}
		epoch, _, ok := strings.Cut(m.Headers().Get(jetstream.MsgIDHeader), "-")
		switch at := meta.Sequence.Stream; {
		case !ok || epoch == now: // the first is of endLog
		case over[epoch] != 0:
			return fmt.Sprintf("message %d is of epoch %s, which another one replaced at message %d", at, epoch, over[epoch]), nil
		default:
			over[now], now = at, epoch
		}
		if meta.NumPending == 0 || meta.Sequence.Stream >= last {
			return "", nil
		}
	}
}
