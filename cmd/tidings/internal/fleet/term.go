package fleet

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
)

// beatEvery is the time between two beats.
const beatEvery = time.Second

// beat is the payload of a beat: what is wrong at the publisher.
type beat struct {
	// Problem with the connection to the API server, empty for none.
	Problem string `json:"problem,omitempty"`
	// Stale has the feeds, by token, whose watch is broken, and why.
	Stale map[string]string `json:"stale,omitempty"`
	// Unpublished has the resources that cannot be published, and why.
	Unpublished map[string]string `json:"unpublished,omitempty"`
}

// sweepEvery is the time between two looks for snapshots of what is not published any more.
const sweepEvery = time.Minute

// term is the time in which one publisher writes the log of a cluster: one epoch.
type term struct {
	*published
	ctx       context.Context
	cancel    context.CancelCauseFunc
	epoch     string
	out       *streamWriter
	number    uint64
	entries   chan *entry
	bytes     atomic.Uint64 // in the log, of this term
	snapshots *snapshots
	limit     int    // of a message's payload
	size      uint64 // of the log, in bytes
	feeds     sync.WaitGroup
	byName    map[feedName]*feed // under published.mu
}

// entry is something to be added to the log.
type entry struct {
	subject string
	header  nats.Header
	payload []byte
	stored  func(position) // may be nil; called by the term's goroutine
	changes int
}

// term publishes until ctx ends, or until it may not or cannot add anything more.
func (c *published) term(ctx context.Context, log, pieces jetstream.Stream) error {
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	t := &term{published: c, epoch: hex.EncodeToString(id), entries: make(chan *entry, 16), byName: map[feedName]*feed{}}
	if t.limit = int(c.nc.MaxPayload()) - 4<<10; t.limit <= 0 { // less the headers
		return errors.New("NATS is not connected")
	}
	t.ctx, t.cancel = context.WithCancelCause(ctx)
	t.size = uint64(log.CachedInfo().Config.MaxBytes)
	defer t.feeds.Wait()
	defer t.cancel(nil)
	var err error
	if t.out, err = newStreamWriter(t.ctx, c.js, log); err != nil {
		return err
	}
	w, err := newStreamWriter(t.ctx, c.js, pieces)
	if err != nil {
		return err
	}
	t.snapshots = &snapshots{term: t, stream: pieces, pieces: w, prefix: snapshotsSubject + token(c.name) + ".", documents: documents{kept: map[string][sha256.Size]byte{}}}
	if err := t.add(t.ctx, &entry{subject: kindEpoch, header: nats.Header{publisherHeader: {c.opts.Name}}}); err != nil {
		return err
	}
	if err := t.out.settle(t.ctx); err != nil {
		return err
	}
	answering, err := c.answer(t)
	if err != nil {
		return err
	}
	defer answering()
	c.set(func(s *PublishState) {
		s.Holds, s.Standby, s.Err, s.Since, s.Epoch = true, "", nil, time.Now(), t.epoch
	})
	c.log.Info("publishing", "epoch", t.epoch)
	err = t.loop()
	t.cancel(err)
	if ctx.Err() != nil {
		t.end()
	}
	return err
}

// endPatience is how long the end of a term may take.
const endPatience = 3 * time.Second

// end lets another publisher take over at once.
func (t *term) end() {
	ctx, done := context.WithTimeout(context.WithoutCancel(t.ctx), endPatience)
	defer done()
	err := t.out.settle(ctx)
	if err == nil {
		err = t.add(ctx, &entry{subject: kindEnd})
	}
	if err == nil {
		err = t.out.settle(ctx)
	}
	if err != nil { // another one takes over, a little later
		t.published.log.Debug("the log could not be ended", "err", err)
	}
}

// loop adds to the log what feeds have, and beats while they have nothing.
func (t *term) loop() error {
	tick, sweep := time.NewTicker(beatEvery), time.NewTicker(sweepEvery)
	defer tick.Stop()
	defer sweep.Stop()
	running := map[*mirror.Informer]bool{}
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	for {
		in := t.entries
		if t.out.full() {
			in = nil
		}
		ok, fail := t.out.oldest()
		var err error
		select {
		case e := <-in:
			err = t.add(t.ctx, e)
		case ack := <-ok:
			err = t.out.acknowledged(ack)
		case failed := <-fail:
			err = t.out.failed(t.ctx, failed)
		case <-tick.C:
			if !t.out.full() {
				err = t.add(t.ctx, t.beat())
			}
		case <-sweep.C:
			t.feeds.Go(t.snapshots.sweep)
		case <-changed:
			t.startFeeds(running)
		case <-t.changed:
			t.startFeeds(running)
		case <-t.ctx.Done():
			return context.Cause(t.ctx)
		}
		if err != nil {
			return err
		}
	}
}

// startFeeds starts the feeds of informers that have none yet.
func (t *term) startFeeds(running map[*mirror.Informer]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for inf := range running {
		if inf.Context().Err() != nil {
			delete(running, inf)
		}
	}
	for name, inf := range t.informers {
		if !running[inf] {
			running[inf] = true
			t.feeds.Go(func() { newFeed(t, name, inf).run() })
		}
	}
}

// add sends an entry, in several messages if it is too long for one.
func (t *term) add(ctx context.Context, e *entry) error {
	for {
		payload := e.payload[:min(len(e.payload), t.limit)]
		e.payload = e.payload[len(payload):]
		t.number++
		at := position{Epoch: t.epoch, Number: t.number, Sequence: t.out.last + 1}
		msg := &nats.Msg{Subject: logSubject + token(t.name) + "." + e.subject, Header: nats.Header{}, Data: payload}
		for name, values := range e.header {
			msg.Header[name] = values
		}
		msg.Header.Set(jetstream.MsgIDHeader, at.id())
		stored := func(uint64) {}
		if len(e.payload) > 0 {
			msg.Header.Set(moreHeader, "1")
		} else if e.stored != nil {
			stored = func(uint64) { e.stored(at) }
		}
		if err := t.out.send(ctx, msg, stored); err != nil {
			return err
		}
		t.bytes.Add(uint64(msg.Size()))
		t.set(func(s *PublishState) { s.Messages++; s.Bytes += uint64(msg.Size()) })
		if len(e.payload) == 0 {
			t.set(func(s *PublishState) { s.Changes += uint64(e.changes) })
			return nil
		}
	}
}

// put hands an entry to the term's goroutine.
func (t *term) put(ctx context.Context, e *entry) error {
	select {
	case t.entries <- e:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	}
}

// mark adds an entry and waits until it is stored.
func (t *term) mark(ctx context.Context, e *entry) (position, error) {
	at := make(chan position, 1)
	e.stored = func(p position) { at <- p }
	if err := t.put(ctx, e); err != nil {
		return position{}, err
	}
	select {
	case p := <-at:
		return p, nil
	case <-ctx.Done():
		return position{}, context.Cause(ctx)
	case <-t.ctx.Done():
		return position{}, context.Cause(t.ctx)
	}
}

// beat returns a beat with what is wrong at the moment.
func (t *term) beat() *entry {
	b := beat{Problem: t.cluster.Connected().Problem()}
	t.mu.Lock()
	for name, inf := range t.informers {
		if s := inf.Engine().Status(); s.Phase != informer.Watching && s.Synced {
			if b.Stale == nil {
				b.Stale = map[string]string{}
			}
			why := fmt.Sprintf("its watch is broken: %v", s.Phase)
			if s.LastError != nil {
				why += ": " + s.LastError.Error()
			}
			b.Stale[name.token()] = why
		}
	}
	b.Unpublished = maps.Clone(t.state.Unpublished)
	t.mu.Unlock()
	payload, _ := json.Marshal(b) // of strings: cannot fail
	return &entry{subject: kindBeat, payload: payload}
}

func (t *term) register(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName[f.name] = f
}

func (t *term) unregister(f *feed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName[f.name] == f {
		delete(t.byName, f.name)
	}
}

// feed returns the feed of a name, nil if there is none.
func (t *term) feed(name feedName) *feed {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byName[name]
}
