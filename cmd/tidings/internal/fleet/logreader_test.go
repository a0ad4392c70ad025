package fleet

import (
	"encoding/json"
	"log/slog"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// reading is a log that is read, and watches of the pods in it.
type reading struct {
	*testing.T
	log  *logReader
	feed *followed
	beat map[string]string // what is stale
}

func newReading(t *testing.T) *reading {
	r := &replica{name: "prod", slog: slog.New(slog.DiscardHandler), feeds: map[feedName]*followed{}}
	r.log = newLogReader(t.Context(), r)
	r.log.failed = nil
	return &reading{T: t, log: r.log, feed: r.feed(feedName{corev1.SchemeGroupVersion.WithResource("pods"), ""})}
}

func (r *reading) at(number uint64) position { return position{"e", number, number} }

// watch joins a watch after a position.
func (r *reading) watch(number uint64) *watchBody {
	b := newWatchBody(r.Context(), r.log, r.feed, number, 0)
	r.log.join(b, r.at(number))
	return b
}

// read reads a message.
func (r *reading) read(number uint64, kind string, reset bool) {
	r.Helper()
	m := message{position: r.at(number), kind: kind, reset: reset, first: number, last: number}
	switch kind {
	case kindBeat:
		m.payload, _ = json.Marshal(beat{Stale: r.beat})
	case kindChanges, kindSnapshot:
		m.feed = r.feed.name
	}
	if !r.log.handle(m, r.log.turn) {
		r.Fatalf("message %d was not handled", number)
	}
}

func ended(b *watchBody) bool {
	select {
	case <-b.ended:
		return true
	default:
		return false
	}
}

// What the publisher said of its health is not believed again when the log is read again for a
// watch that joins at an earlier position.
func TestOldBeatsEndNoWatch(t *testing.T) {
	r := newReading(t)
	r.read(1, kindEpoch, false)
	r.beat = map[string]string{r.feed.name.token(): "the API server is away"}
	r.read(2, kindBeat, false)
	r.beat = nil
	r.read(3, kindBeat, false)
	newest := r.watch(3)
	early := r.watch(1)
	r.beat = map[string]string{r.feed.name.token(): "the API server is away"}
	r.read(2, kindBeat, false)
	if ended(newest) || ended(early) || r.log.stale(r.feed.name) != "" {
		t.Error("a beat that was read again has ended a watch")
	}
	r.read(3, kindBeat, false)
	r.read(4, kindBeat, false)
	if !ended(newest) || !ended(early) || r.log.stale(r.feed.name) == "" {
		t.Error("a new beat has not ended the watches of what is stale")
	}
}

// A watch that begins with the snapshot that the publisher made when it listed again does not end when
// the log is read up to there.
func TestResetIsNotForItsOwnSnapshot(t *testing.T) {
	r := newReading(t)
	r.read(1, kindEpoch, false)
	before, after := r.watch(1), r.watch(3)
	r.read(2, kindBeat, false)
	r.read(3, kindSnapshot, true)
	if !ended(before) {
		t.Error("a watch goes on with what cannot be continued")
	}
	if ended(after) {
		t.Error("the watch of the new snapshot has ended")
	}
}

// Changes that a watch has got are not passed to it again when the log is read again for another
// one.
func TestGoingBackRepeatsNothing(t *testing.T) {
	r := newReading(t)
	r.read(1, kindEpoch, false)
	first := r.watch(1)
	r.read(2, kindChanges, false)
	r.read(3, kindChanges, false)
	second := r.watch(1)
	for number := uint64(2); number < 5; number++ {
		r.read(number, kindChanges, false)
	}
	for name, b := range map[string]*watchBody{"the first": first, "the second": second} {
		var got []uint64
		for len(b.messages) > 0 {
			m := <-b.messages
			got = append(got, m.Number)
		}
		if len(got) != 3 || got[0] != 2 || got[1] != 3 || got[2] != 4 {
			t.Errorf("%s watch got the messages %v", name, got)
		}
	}
}
