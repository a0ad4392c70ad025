package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// silence is how long nothing may be heard of a publisher, which beats every second.
const silence = 5 * time.Second

// logReader reads the log of a cluster, once for all of its feeds. It checks that no message
// is missing, and ends the watches of feeds that cannot be continued.
type logReader struct {
	replica *replica
	ctx     context.Context // of run

	mu     sync.Mutex
	at     position // of the last message; zero if there is none
	newest position // the last message but for those that are read again after the reader went back
	lost   bool     // at is zero because the log went back; the next message is after a gap
	// trusted is the epoch of which snapshots may be used. Streams that were restored from an earlier copy
	// have epochs, too, that are new to the reader and yet older than what it has. So only the first one is
	// believed; the publisher must confirm each other one.
	trusted string
	gap     position              // of the first message after the last gap; zero if there was none
	resets  map[feedName]position // after which a feed must begin again; of feeds that are followed
	bodies  map[*watchBody]struct{}
	heard   time.Time // when the last message came
	delay   delay
	beat    beat
	failed  error         // why the log cannot be read; nil if it can
	closed  error         // why it is not read any more; nil if it is
	turn    int           // goes up when the reader goes back to an earlier position
	back    chan struct{} // closed then

	known    chan struct{} // closed when it was read, or could not be, for the first time
	setKnown func()

	gaps uint64
}

func newLogReader(ctx context.Context, r *replica) *logReader {
	known := make(chan struct{})
	return &logReader{
		replica: r, ctx: ctx, resets: map[feedName]position{}, bodies: map[*watchBody]struct{}{}, back: make(chan struct{}), failed: errors.New("it is about to be read"),
		known: known, setKnown: sync.OnceFunc(func() { close(known) }),
	}
}

// run reads until the reader's context ends.
func (l *logReader) run() {
	ctx := l.ctx
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		err := l.read(ctx)
		if ctx.Err() != nil {
			break
		}
		if errors.Is(err, errBack) {
			continue
		}
		up, down := l.replica.link()
		before := l.fail(err)
		if !errors.Is(err, errDown) && (before == nil || before.Error() != err.Error()) { // the connection says that once for all
			l.replica.slog.Warn("the log of a published cluster cannot be read; trying until it can", "err", err)
		}
		if errors.Is(err, errSilent) {
			pause = 100 * time.Millisecond
		}
		select {
		case <-down:
			select { // the client of NATS sees to it that not all replicas come back at once
			case <-up:
			case <-ctx.Done():
			}
			pause = 100 * time.Millisecond
			continue
		default:
		}
		select { // not all replicas at once
		case <-time.After(pause/2 + rand.N(pause)):
		case <-ctx.Done():
		}
		pause = min(2*pause, 5*time.Second)
	}
	l.close(context.Cause(ctx))
}

// errSilent is the error of a log to which nothing is added.
var errSilent = fmt.Errorf("nothing was heard from the publisher for %v", silence)

// errDown ends a reading because NATS is not connected.
var errDown = errors.New("NATS cannot be reached")

// errBack ends a reading because there is another position to read from.
var errBack = errors.New("reading goes on at an earlier position")

// read reads from where the reader is.
func (l *logReader) read(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	from, turn, back := l.at, l.turn, l.back
	l.mu.Unlock()
	_, down := l.replica.link()
	go func() {
		select {
		case <-back:
			cancel(errBack)
		case <-down:
			cancel(errDown)
		case <-ctx.Done():
		}
	}()
	err := l.follow(ctx, from, turn)
	if cause := context.Cause(ctx); errors.Is(cause, errBack) || errors.Is(cause, errDown) {
		return cause
	}
	return err
}

func (l *logReader) follow(ctx context.Context, from position, turn int) error {
	js := l.replica.js
	stream, err := js.Stream(ctx, logStream+token(l.replica.name))
	if err != nil {
		return err
	}
	info := stream.CachedInfo()
	start := from.Sequence + 1
	switch last := info.State.LastSeq; {
	case from.Epoch == "":
		start = max(1, last)
	case last < from.Sequence:
		l.loseAll(fmt.Errorf("it ends at message %d, and message %d was read before", last, from.Sequence))
		start = max(1, last)
	}
	consumer, err := js.OrderedConsumer(ctx, info.Config.Name, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: start})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(512))
	if err != nil {
		return err
	}
	defer messages.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer patience.Stop()
	next := jetstream.NextContext(ctx)
	for {
		patience.Reset(silence)
		msg, err := messages.Next(next)
		patience.Stop() // watches may take their time
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		m, err := parseMessage(l.replica.name, msg.Subject(), msg.Headers(), msg.Data(), meta.Sequence.Stream)
		if err != nil { // the numbers of the others show whether it stands for one of them
			l.replica.slog.Warn("a message of the log cannot be read", "err", err)
			continue
		}
		m.stored = meta.Timestamp
		if !l.handle(m, turn) {
			return errBack
		}
	}
}

// handle passes a message on. It returns false if the reader has gone back meanwhile.
func (l *logReader) handle(m message, turn int) bool {
	l.mu.Lock()
	if l.turn != turn {
		l.mu.Unlock()
		return false
	}
	l.failed = nil
	l.setKnown()
	again := m.Epoch == l.newest.Epoch && m.Number <= l.newest.Number // what it says of the publisher is old
	switch {
	case l.lost:
		if l.lost = false; l.gap.Epoch != m.Epoch || l.gap.Number < m.Number {
			l.gap = m.position
		}
	case l.at.Epoch == "", m.Epoch == l.at.Epoch && m.Number == l.at.Number+1:
	case m.kind == kindEpoch && m.Number == 1 && m.Epoch != l.at.Epoch:
		l.endAll(m.position, errors.New("another publisher has begun"))
	case m.Epoch == l.at.Epoch && m.Number <= l.at.Number: // nothing of what follows has a number of its own
		l.endAll(position{m.Epoch, l.at.Number + 2, m.Sequence}, fmt.Errorf("message %s came after %s", m.id(), l.at.id()))
		l.gaps++
		again = false
	default:
		l.endAll(m.position, fmt.Errorf("message %s came after %s", m.id(), l.at.id()))
		l.gaps++
	}
	l.at = m.position
	if l.trusted == "" {
		l.trusted = m.Epoch
	}
	var to []*watchBody // that the message is for
	for b := range l.bodies {
		if m.Number <= b.at.Number {
			continue // it was passed before the reader went back, or a snapshot has it
		}
		b.at = m.position
		switch {
		case m.kind == kindChanges && b.feed.name == m.feed:
			b.chosen = m.Number
			to = append(to, b)
		case m.kind == kindBeat, m.kind == kindSnapshot && m.reset && b.feed.name == m.feed:
			to = append(to, b)
		}
	}
	if !again {
		l.newest, l.heard = m.position, time.Now()
		l.delay.add(l.heard, m.stored)
	}
	switch {
	case again && m.kind != kindSnapshot:
	case m.kind == kindEpoch:
		l.beat = beat{}
	case m.kind == kindEnd:
		l.beat = beat{Problem: "it has stopped, and no other has begun yet"}
	case m.kind == kindBeat:
		l.beat = beat{}
		if err := json.Unmarshal(m.payload, &l.beat); err != nil {
			l.replica.slog.Warn("a beat of a publisher cannot be read", "err", err)
		}
		for _, b := range to {
			if why := l.beat.Stale[b.feed.name.token()]; why != "" {
				l.end(b, fmt.Errorf("the publisher's %s are out of date: %s", b.feed.name, why))
			}
		}
	case m.kind == kindSnapshot && m.reset:
		if !again && l.replica.follows(m.feed) {
			l.resets[m.feed] = m.position
		}
		for _, b := range to {
			l.end(b, expired("the publisher had to list the resource again"))
		}
	}
	l.mu.Unlock()
	if m.kind == kindChanges {
		for _, b := range to {
			b.pass(l.ctx, m) // even if the reader goes back now
		}
	}
	return true
}

// expired is the error of a watch that must begin again with a list.
func expired(why string) error { return &statusError{http.StatusGone, why} }

// end ends a watch. l.mu is held.
func (l *logReader) end(b *watchBody, why error) {
	delete(l.bodies, b)
	b.end(why)
}

// endAll ends all watches that have not passed a position: messages before it are missing,
// so that nothing that was read before can be continued. l.mu is held.
func (l *logReader) endAll(at position, why error) {
	l.replica.slog.Info("beginning again with snapshots", "reason", why)
	if l.gap.Epoch != at.Epoch || l.gap.Number < at.Number {
		l.gap = at
	}
	for b := range l.bodies {
		if b.at.Epoch != at.Epoch || b.at.Number+1 < at.Number {
			l.end(b, expired(why.Error()))
		}
	}
}

// loseAll is endAll for a reader that does not know where the log goes on.
func (l *logReader) loseAll(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endAll(position{}, why)
	// What this epoch has up to here was read, so a snapshot that follows is of a later time.
	l.gap = position{l.newest.Epoch, l.newest.Number + 1, 0}
	l.at, l.newest, l.lost = position{}, position{}, true
	l.gaps++
}

// fail notes why the log cannot be read, and returns the reason before. Watches stay open: they go
// on where they are, or end with a gap, once the log can be read. Until then [logReader.problem] says
// that nobody knows whether they are up to date.
func (l *logReader) fail(why error) (before error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, l.failed = l.failed, why
	l.setKnown()
	return before
}

// close ends all watches: the log is not read any more.
func (l *logReader) close(why error) {
	l.fail(why)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = why
	for b := range l.bodies {
		l.end(b, why)
	}
}

// state returns where the log is, where the last gap was, and of which epoch snapshots may be used.
func (l *logReader) state() (at, gap position, trusted string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.gap, l.trusted
}

// trust says that the publisher has confirmed an epoch.
func (l *logReader) trust(epoch string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trusted = epoch
}

// reset returns the position after which a feed must begin again, zero if there is none.
func (l *logReader) reset(name feedName) position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.resets[name]
}

// spoil says that a message about a feed cannot be read. Its watches cannot be continued.
func (l *logReader) spoil(m message, why error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replica.slog.Warn("a message of the log cannot be read; beginning again with a snapshot", "resource", m.feed.String(), "err", why)
	if before := l.resets[m.feed]; before.Epoch != m.Epoch || before.Number < m.Number {
		l.resets[m.feed] = m.position
	}
	return expired(why.Error())
}

// problem says why what was read may not be what the cluster has, "" if nothing is known to
// be wrong.
func (l *logReader) problem() string {
	if !l.replica.connected() {
		return errDown.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return "the log of the cluster cannot be read: " + l.failed.Error()
	case time.Since(l.heard) > silence:
		return fmt.Sprintf("nothing was heard from the publisher for %v", time.Since(l.heard).Round(time.Second))
	case l.beat.Problem != "":
		return "the publisher: " + l.beat.Problem
	}
	return ""
}

// stale says why a feed is not up to date at the publisher, "" if it is.
func (l *logReader) stale(name feedName) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beat.Stale[name.token()]
}

// join adds a watch that goes on after a position.
func (l *logReader) join(b *watchBody, at position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.at = at
	switch {
	case l.lost || l.gap.Epoch != "" && (l.gap.Epoch != at.Epoch || l.gap.Number > at.Number):
		b.end(expired("messages of the log are missing"))
		return
	case l.closed != nil:
		b.end(l.closed)
		return
	}
	l.bodies[b] = struct{}{}
	if l.at.Epoch != at.Epoch || l.at.Number > at.Number {
		l.at = at
		l.turn++
		close(l.back)
		l.back = make(chan struct{})
	}
}

// delayWindow is how long the quickest message counts: a clock may have been set.
const delayWindow = 5 * time.Minute

// delay measures how late messages come. The clocks of NATS and of this process may be
// apart, so the quickest message of the last minutes is taken to have had no delay.
type delay struct {
	quickest, before time.Duration // in this window, and in the one before
	since            time.Time     // when this window began
	last             time.Duration
}

func (d *delay) add(now, stored time.Time) {
	took := now.Sub(stored)
	switch {
	case d.since.IsZero():
		d.quickest, d.before, d.since = took, took, now
	case now.Sub(d.since) > delayWindow:
		d.quickest, d.before, d.since = took, d.quickest, now
	}
	d.quickest = min(d.quickest, took)
	d.last = took - min(d.quickest, d.before)
}

// leave removes a watch.
func (l *logReader) leave(b *watchBody) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bodies, b)
}

// reached returns the position up to which a watch that has ended had every message of its
// feed. ok is false if there are some that it has not taken.
func (l *logReader) reached(b *watchBody) (at position, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.bodies, b)
	return b.at, b.chosen == b.taken
}
