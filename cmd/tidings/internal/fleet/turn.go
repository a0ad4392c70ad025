package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A log has one writer, which adds a beat every second. Another publisher begins an epoch of its
// own when the log has not grown for a time, by its own clock, or has been ended. That
// only says when to try: the sequence that each message expects decides, see streamWriter. So
// the log itself is the lease.
const (
	// silentFor is how long a log must not have grown.
	silentFor = 10 * time.Second
	// turnEvery is the time between two looks at a log that another publisher writes.
	turnEvery = time.Second
)

// waitTurn waits until nobody writes the log. waits is called with the name of the publisher
// that does.
func (c *published) waitTurn(ctx context.Context, log jetstream.Stream, waits func(holder string)) error {
	var seen uint64
	since := time.Now()
	for {
		info, err := log.Info(ctx)
		if err != nil {
			return fmt.Errorf("look at the log: %w", err)
		}
		last := info.State.LastSeq
		if last != seen {
			seen, since = last, time.Now()
		}
		if last == 0 || time.Since(since) >= silentFor {
			return nil
		}
		prefix := logSubject + token(c.name) + "."
		ended, err := log.GetLastMsgForSubject(ctx, prefix+kindEnd)
		if err == nil && ended.Sequence == last {
			return nil
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("read the end of the log: %w", err)
		}
		holder := "a publisher"
		if begun, err := log.GetLastMsgForSubject(ctx, prefix+kindEpoch); err == nil {
			holder = begun.Header.Get(publisherHeader)
		}
		waits(holder)
		select {
		case <-time.After(turnEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
