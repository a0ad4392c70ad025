package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/object"
)

const (
	// batchEvents and batchBytes bound a message of changes, uncompressed.
	batchEvents, batchBytes = 512, 1 << 20
	// snapshotAfter is the least that the log must have of a feed since its last snapshot
	// before there is another one, unless somebody asks for it.
	snapshotAfter = 4 << 20
	// lookEvery is how often a feed without changes looks whether it needs a snapshot.
	lookEvery = 5 * time.Second
)

// encoder compresses messages: most have one change, of which the slower levels save 3 % more. It is safe for
// concurrent use.
var encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true)) // fails only for wrong options

// feed publishes what one informer has, in one term.
type feed struct {
	term *term
	name feedName
	inf  *mirror.Informer
	ctx  context.Context
	kind schema.GroupVersionKind

	buf     []byte // frames of the batch
	version uint64 // of the last event that was published
	asked   chan struct{}

	logged    int           // bytes of the feed in the log since its last snapshot began
	begun     uint64        // bytes of the whole log when it began
	size      atomic.Int64  // of the last snapshot
	making    chan struct{} // closed when the snapshot in progress is complete; nil: there is none
	published bool          // a snapshot was begun in this term
	made      int           // snapshots; under snapshots.mu
	newest    atomic.Uint64 // number of the message that announced the newest snapshot
	wanted    atomic.Uint64 // number from which somebody has asked for another
}

func newFeed(t *term, name feedName, inf *mirror.Informer) *feed {
	return &feed{term: t, name: name, inf: inf, kind: inf.Resource().GVK(), asked: make(chan struct{}, 1)}
}

// waiting is the number of events that wait for the log outside of the informer's backlog.
const waiting = 128

// run publishes until the term or the informer ends.
func (f *feed) run() {
	ctx, stop := mirror.Either(f.term.ctx, f.inf.Context())
	defer stop()
	f.ctx = ctx
	f.term.register(f)
	defer f.term.unregister(f)
	defer func() {
		if f.making != nil {
			<-f.making
		}
	}()
	events, done := mirror.Subscribe(ctx, f.inf.Engine(), "publisher", waiting, f.inf.FollowOptions()...)
	defer done()
	defer f.inf.Watched()() // it is not idle: others follow it
	err := f.follow(events)
	if errors.Is(err, errVersions) {
		f.term.refuse(f.name, err)
		defer f.term.refuse(f.name, nil)
		<-ctx.Done()
		return
	}
	if err != nil && ctx.Err() == nil {
		f.term.cancel(fmt.Errorf("publish %s: %w", f.name, err))
		return
	}
	// Nothing will follow what is in the log. If somebody asks for the feed, there is another one.
	_ = f.term.put(f.term.ctx, f.announcement(true)) // the term has ended otherwise
}

// errVersions says why a resource cannot be published.
var errVersions = errors.New("its resourceVersions are not decimal numbers")

// announcement returns the message from which a snapshot is continued.
func (f *feed) announcement(reset bool) *entry {
	e := &entry{subject: kindSnapshot + "." + f.name.token(), header: nats.Header{}}
	if reset {
		e.header.Set(resetHeader, "1")
	}
	return e
}

func (f *feed) follow(events <-chan informer.Event[*codec.Raw]) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	synced, broken := false, false
	for {
		select {
		case e := <-events:
			batch, first := 0, uint64(0)
			for more := true; more; {
				version := object.Version(e.ResourceVersion())
				switch {
				case !synced: // the snapshot will have it
					if synced = e.Type == informer.Synced; synced {
						if f.version = version; version == 0 {
							return errVersions
						}
						if err := f.snapshot(false); err != nil {
							return err
						}
					}
				case broken || e.Folded || e.Relist && (e.Object != nil || version < f.version):
					if batch > 0 {
						if err := f.flush(batch, first); err != nil {
							return err
						}
						batch = 0
					}
					if broken = !e.Resumable && e.Object != nil; !broken {
						f.version = version
						if err := f.snapshot(true); err != nil {
							return err
						}
					}
				case e.Tombstone: // the next event shows that, as it did to the informer
				case version <= f.version: // a bookmark that says nothing new
				default:
					if err := f.frame(e, version); err != nil {
						return err
					}
					if batch++; batch == 1 {
						first = version
					}
					f.version = version
				}
				if more = batch < batchEvents && len(f.buf) < batchBytes; more {
					select {
					case e = <-events:
					default:
						more = false
					}
				}
			}
			if batch > 0 {
				if err := f.flush(batch, first); err != nil {
					return err
				}
			}
		case <-f.asked:
			if synced && !broken && f.newest.Load() < f.wanted.Load() {
				if err := f.snapshot(false); err != nil {
					return err
				}
			}
			continue
		case <-look.C:
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
		if f.due() {
			if err := f.snapshot(false); err != nil {
				return err
			}
		}
	}
}

// due reports whether the log since the last snapshot takes a reader longer than another
// snapshot would, or is about to lose what follows the last one.
func (f *feed) due() bool {
	if !f.published || f.busy() {
		return false
	}
	return f.logged > max(snapshotAfter, int(f.size.Load())) || f.term.bytes.Load()-f.begun > f.term.size/2
}

func (f *feed) busy() bool {
	if f.making == nil {
		return false
	}
	select {
	case <-f.making:
		return false
	default:
		return true
	}
}

// frame adds an event to the batch, as a line of the answer to a watch.
func (f *feed) frame(e informer.Event[*codec.Raw], version uint64) error {
	if e.Object == nil {
		f.buf = fmt.Appendf(f.buf, `{"type":"BOOKMARK","object":{"kind":%s,"apiVersion":%s,"metadata":{"resourceVersion":"%d"}}}`+"\n",
			quoted(f.kind.Kind), quoted(f.kind.GroupVersion().String()), version)
		return nil
	}
	o := e.Object
	if v := e.ResourceVersion(); o.GetResourceVersion() != v {
		var err error
		if o, err = codec.WithVersion(o, v); err != nil {
			return err
		}
	}
	f.buf = fmt.Appendf(f.buf, `{"type":%q,"object":`, e.Type)
	o.VisitJSON(func(b []byte) { f.buf = append(f.buf, b...) })
	f.buf = append(f.buf, "}\n"...)
	return nil
}

func quoted(s string) []byte {
	b, _ := json.Marshal(s) // of a string: cannot fail
	return b
}

// flush publishes the batch.
func (f *feed) flush(events int, first uint64) error {
	buf := buffers.get()
	*buf = encoder.EncodeAll(f.buf, (*buf)[:0])
	payload := bytes.Clone(*buf)
	buffers.put(buf)
	f.buf = f.buf[:0]
	if cap(f.buf) > 2*batchBytes {
		f.buf = nil
	}
	f.logged += len(payload)
	return f.term.put(f.ctx, &entry{
		subject: kindChanges + "." + f.name.token(), payload: payload, changes: events,
		header: nats.Header{versionsHeader: {strconv.FormatUint(first, 10) + "-" + strconv.FormatUint(f.version, 10)}},
	})
}

// snapshot marks the place in the log from which a new snapshot is continued, and has it made
// while the feed goes on. reset says that what is in the log before cannot be continued.
func (f *feed) snapshot(reset bool) error {
	if f.making != nil {
		select {
		case <-f.making:
		case <-f.ctx.Done():
			return context.Cause(f.ctx)
		}
	}
	f.begun = f.term.bytes.Load()
	at, err := f.term.mark(f.ctx, f.announcement(reset))
	if err != nil {
		return err
	}
	f.logged, f.published = 0, true
	f.newest.Store(at.Number)
	f.making = make(chan struct{})
	go func() {
		defer close(f.making)
		size, err := f.term.snapshots.make(f.ctx, f, at)
		if errors.Is(err, errEmptied) { // it is about to end, or to list again
			return
		}
		if err != nil && f.ctx.Err() == nil {
			f.term.cancel(fmt.Errorf("make a snapshot of %s: %w", f.name, err))
			return
		}
		f.size.Store(int64(size))
	}()
	return nil
}

// ask asks for a snapshot that is announced by a message with a number, or a later one.
func (f *feed) ask(number uint64) {
	f.wanted.Store(number)
	if f.newest.Load() >= number { // it is there, or being made
		return
	}
	select {
	case f.asked <- struct{}{}:
	default:
	}
}
