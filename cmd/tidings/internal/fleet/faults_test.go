package fleet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cmd/tidings/internal/fleet"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/informer"
)

const (
	logOfProd       = "TIDINGS_LOG_prod"
	snapshotsOfProd = "TIDINGS_SNAPSHOTS_prod"
)

// via makes a client connect through a proxy.
func via(p *proxy) nats.Option {
	return func(o *nats.Options) error {
		o.Servers = []string{p.url()}
		o.IgnoreDiscoveredServers = true
		return nil
	}
}

// record is a message of the log.
type record struct {
	sequence, number uint64
	epoch, kind      string
	reset            bool
}

// log returns what the log has.
func (r *rig) records() (all []record) {
	r.Helper()
	js := r.js()
	s, err := js.Stream(r.ctx, logOfProd)
	r.must(err)
	state := s.CachedInfo().State
	for seq := max(1, state.FirstSeq); seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(r.ctx, seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		r.must(err)
		epoch, number, ok := strings.Cut(m.Header.Get(jetstream.MsgIDHeader), "-")
		if !ok {
			continue // see end
		}
		n, err := strconv.ParseUint(number, 10, 64)
		r.must(err)
		all = append(all, record{seq, n, epoch, strings.Split(m.Subject, ".")[3], m.Header.Get("Tidings-Reset") != ""})
	}
	return all
}

// unmixed checks that each epoch is in one piece, complete and in order. It returns the epochs.
func (r *rig) unmixed() (epochs []string) {
	r.Helper()
	seen := map[string]bool{}
	var last record
	for _, m := range r.records() {
		switch {
		case m.epoch != last.epoch && seen[m.epoch]:
			r.Errorf("message %d is of epoch %s, which another has followed", m.sequence, m.epoch)
		case m.epoch == last.epoch && m.number != last.number+1:
			r.Errorf("message %d has the number %d after %d", m.sequence, m.number, last.number)
		case m.epoch != last.epoch:
			if m.number != 1 && len(seen) > 0 {
				r.Errorf("epoch %s begins with number %d", m.epoch, m.number)
			}
			epochs = append(epochs, m.epoch)
		}
		seen[m.epoch], last = true, m
	}
	return epochs
}

// holder waits until a part publishes, and returns its state.
func (p *part) holds() (state fleet.PublishState) {
	p.Helper()
	p.eventually("publishing", func() error {
		for _, s := range p.pub.States() {
			if state = s; s.Holds {
				return nil
			}
		}
		return fmt.Errorf("%+v", state)
	})
	return state
}

// scene is a published cluster with a replica that is watched.
type scene struct {
	*counters
	publisher, replica *part
	from, to           *proxy // of the publisher and of the replica
	seen               *witness
	fresh              func() int
}

func newScene(t *testing.T) *scene { return newSceneOf(t, newRig(t)) }

func newSceneOf(t *testing.T, r *rig) *scene {
	t.Parallel()
	return newSceneOn(r)
}

func newSceneOn(r *rig) *scene {
	s := &scene{counters: &counters{rig: r, values: map[string]int{}, removed: map[string]bool{}}, from: r.proxy(), to: r.proxy()}
	s.write("a")
	s.publisher = r.publisher("first", via(s.from))
	s.replica = r.replica("one", via(s.to))
	s.replica.has(s.now())
	s.seen = s.replica.witness("one")
	s.fresh = s.prober(s.replica)
	s.write("b")
	s.replica.has(s.now())
	return s
}

// recovers writes, and checks that all replicas have everything again.
func (s *scene) recovers(others ...*part) {
	s.Helper()
	begun := time.Now()
	s.write("a")
	s.write("b")
	for _, p := range append(others, s.replica) {
		p.has(s.now())
	}
	all := time.Since(begun)
	n := s.fresh()
	s.eventually("a read of the newest state", func() error {
		if s.fresh() == n {
			return errors.New("all fail")
		}
		return nil
	})
	s.check(s.seen)
	s.Logf("up to date after %v, newest state after %v, %d lists", all.Round(time.Millisecond), time.Since(begun).Round(time.Millisecond), s.seen.lists())
}

// delete deletes the messages of a stream that are chosen by their number from the first, negative
// ones from the last.
func (s *scene) deleteMessages(stream string, chosen ...int) {
	s.Helper()
	st, err := s.js().Stream(s.ctx, stream)
	s.must(err)
	state := st.CachedInfo().State
	for _, n := range chosen {
		seq := state.FirstSeq + uint64(n)
		if n < 0 {
			seq = state.LastSeq + 1 - uint64(-n)
		}
		if err := st.DeleteMsg(s.ctx, seq); err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) {
			s.must(err)
		}
	}
}

func TestFaults(t *testing.T) {
	for _, fault := range []struct {
		name string
		does func(s *scene)
	}{
		{"NATS restarts", func(s *scene) { s.restart(func() { s.write("a") }) }},
		{"NATS restarts without its store", func(s *scene) {
			s.restart(func() { s.must(os.RemoveAll(s.dir)); s.write("a") })
		}},
		{"the log is deleted", func(s *scene) { s.must(s.js().DeleteStream(s.ctx, logOfProd)) }},
		{"the snapshots are deleted", func(s *scene) {
			s.must(s.js().DeleteStream(s.ctx, snapshotsOfProd))
			s.replica.has(s.now())
			s.replicaHas("two")
		}},
		{"the snapshots are purged", func(s *scene) {
			st, err := s.js().Stream(s.ctx, snapshotsOfProd)
			s.must(err)
			s.must(st.Purge(s.ctx))
			s.replicaHas("two")
		}},
		{"a piece of the snapshot is missing", func(s *scene) {
			st, err := s.js().Stream(s.ctx, snapshotsOfProd)
			s.must(err)
			s.must(st.Purge(s.ctx, jetstream.WithPurgeSubject("tidings.snapshots.prod.core.v1.configmaps._all.*.0")))
			s.replicaHas("two")
		}},
		{"the pieces of the snapshot are those of another one", func(s *scene) {
			for _, slot := range []string{"a", "b"} {
				_, err := s.js().PublishMsg(s.ctx, &nats.Msg{
					Subject: "tidings.snapshots.prod.core.v1.configmaps._all." + slot + ".0",
					Header:  nats.Header{"Tidings-Snapshot": {"another"}}, Data: []byte("of another"),
				})
				s.must(err)
			}
			s.replicaHas("two")
		}},
		{"the log is purged", func(s *scene) {
			st, err := s.js().Stream(s.ctx, logOfProd)
			s.must(err)
			s.must(st.Purge(s.ctx))
			s.replicaHas("two")
		}},
		{"somebody else ends the log", func(s *scene) { s.end() }},
		{"messages vanish before a new reader", func(s *scene) {
			for i := range 5 {
				s.write("c" + strconv.Itoa(i))
				s.replica.has(s.now())
			}
			s.deleteMessages(logOfProd, -2, -4, -1)
			s.replicaHas("two")
		}},
		{"a message vanishes before it is read", func(s *scene) { s.vanish(1) }},
		{"the last message vanishes", func(s *scene) { s.vanish(2) }},
		{"a beat vanishes", func(s *scene) { s.vanish(0) }},
		{"the connection of the publisher breaks", func(s *scene) { s.write("a"); s.from.cut(); s.write("a") }},
		{"the connection of the replica breaks", func(s *scene) { s.write("a"); s.to.cut(); s.write("a") }},
		{"the publisher lists again", func(s *scene) {
			s.api.SetDown(true)
			s.write("a")
			s.write("c")
			s.compact()
			s.api.SetDown(false)
		}},
		{"the watch of the publisher expires", func(s *scene) {
			s.api.FailWatches(configMaps, apierrors.NewResourceExpired("too old"))
			s.write("a")
			s.write("a")
		}},
		{"the publisher is stopped and started", func(s *scene) {
			s.publisher.stop()
			s.write("a")
			s.publisher = s.rig.publisher("second")
			s.publisher.holds()
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			s := newScene(t)
			s.write("a")
			fault.does(s)
			s.recovers()
			s.unmixedBut(fault.name)
		})
	}
}

// unmixedBut checks the log, unless the test has deleted messages.
func (s *scene) unmixedBut(name string) {
	if !strings.Contains(name, "vanish") {
		s.unmixed()
	}
}

// replicaHas starts another replica and waits until it has everything.
func (s *scene) replicaHas(name string) *part {
	s.Helper()
	p := s.rig.replica(name)
	p.has(s.now())
	return p
}

// vanish deletes a message of the log before the replica has received it: a beat, one of
// changes or the last one of changes.
func (s *scene) vanish(which int) {
	s.Helper()
	s.to.block(toServer, toClient)
	first := s.records()
	s.write("a")
	s.write("b")
	var victim uint64
	s.eventually("messages to delete", func() error {
		var beats, changes []uint64
		for _, m := range s.records()[len(first):] {
			switch m.kind {
			case "beat":
				beats = append(beats, m.sequence)
			case "changes":
				changes = append(changes, m.sequence)
			}
		}
		if len(beats) < 2 || len(changes) == 0 {
			return fmt.Errorf("%v %v", beats, changes)
		}
		victim = []uint64{beats[0], changes[0], changes[len(changes)-1]}[which]
		return nil
	})
	st, err := s.js().Stream(s.ctx, logOfProd)
	s.must(err)
	s.must(st.DeleteMsg(s.ctx, victim))
	s.to.cut() // what it has been sent already is lost
	s.to.release()
}

// An acknowledgement that is lost does not begin another epoch: the message is found in the stream.
func TestLostAcknowledgement(t *testing.T) {
	s := newScene(t)
	epoch := s.publisher.holds().Epoch
	s.lostAcknowledgement()
	if now := s.publisher.holds().Epoch; now != epoch {
		t.Errorf("another epoch has begun")
	}
	if n := s.seen.lists(); n > 0 {
		t.Errorf("the replica has listed %d times more", n)
	}
	s.unmixed()
}

// A publisher that is held up for longer than its lease cannot add anything when it is back.
func TestPublisherIsReplaced(t *testing.T) {
	for _, killed := range []bool{false, true} {
		name := "paused"
		if killed {
			name = "killed"
		}
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			first := s.publisher.holds().Epoch
			second := s.rig.publisher("second")
			s.from.block(toServer, toClient)
			if killed {
				s.from.setDown(true)
			}
			s.write("a") // it waits in the connection of the first
			begun := time.Now()
			epoch := second.holds().Epoch
			s.Logf("replaced after %v", time.Since(begun).Round(time.Millisecond))
			s.write("b")
			s.replica.has(s.now())
			if !killed {
				s.from.release()
			}
			s.recovers()
			if epochs := s.unmixed(); len(epochs) != 2 || epochs[0] != first || epochs[1] != epoch {
				t.Errorf("the epochs are %v, not %s and %s", epochs, first, epoch)
			}
			s.from.release()
		})
	}
}

// Two that believe that they have the lease do not mix what they write.
func TestTwoPublishers(t *testing.T) {
	s := newScene(t)
	other := s.rig.publisher("second")
	for range 3 {
		s.end()
		for range 20 {
			s.write("a")
		}
		s.replica.has(s.now())
	}
	s.recovers()
	s.unmixed()
	_ = other
}

// end ends the log, so that each publisher believes that the other has stopped.
func (s *scene) end() {
	s.Helper()
	_, err := s.js().Publish(s.ctx, "tidings.log.prod.end", nil)
	s.must(err)
}

// The store of NATS is restored from an earlier copy.
func TestStoreIsRestored(t *testing.T) {
	for _, what := range []string{"everything", "log", "snapshots"} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			copied := t.TempDir()
			s.restart(func() { s.must(os.CopyFS(copied, os.DirFS(s.dir))) })
			s.recovers()
			s.write("c")
			s.replica.has(s.now())
			s.restart(func() {
				part := "."
				if stream := map[string]string{"log": logOfProd, "snapshots": snapshotsOfProd}[what]; stream != "" {
					found, err := filepath.Glob(filepath.Join(s.dir, "jetstream", "*", "streams", stream))
					s.must(err)
					if len(found) != 1 {
						t.Fatalf("%d streams found", len(found))
					}
					part, err = filepath.Rel(s.dir, found[0])
					s.must(err)
				}
				s.must(os.RemoveAll(filepath.Join(s.dir, part)))
				s.must(os.CopyFS(filepath.Join(s.dir, part), os.DirFS(filepath.Join(copied, part))))
				s.write("a")
			})
			s.replicaHas("two")
			s.recovers()
			s.unmixed()
		})
	}
}

// The stores are restored from a copy whose log is longer than that of now, which was begun anew meanwhile. What follows
// in it looks like news.
func TestLongerLogIsRestored(t *testing.T) {
	s := newScene(t)
	for range 40 {
		s.write("a")
	}
	s.replica.has(s.now())
	s.publisher.stop()
	s.publisher = s.rig.publisher("second", via(s.from)) // with a snapshot near the end of the log
	s.publisher.holds()
	s.replicaHas("two").stop()
	copied := t.TempDir()
	s.restart(func() { s.must(os.CopyFS(copied, os.DirFS(s.dir))) })
	s.recovers()
	s.must(s.js().DeleteStream(s.ctx, logOfProd))
	s.recovers()
	inf := s.replica.informer()
	s.from.block(toServer, toClient)
	s.restart(func() {
		s.must(os.RemoveAll(s.dir))
		s.must(os.CopyFS(s.dir, os.DirFS(copied)))
	})
	s.eventually("the replica to see the old log", func() error {
		if err := inf.Engine().Status().LastError; err == nil || !strings.Contains(err.Error(), "has not confirmed that the log is its own") {
			return fmt.Errorf("the last error is %v", err)
		}
		return nil
	})
	s.check(s.seen)
	s.from.cut()
	s.from.release()
	s.recovers()
	s.unmixed()
}

// incompressible returns text that zstd cannot make much smaller.
func incompressible(size, seed int) string {
	out, x := make([]byte, size), uint64(seed)*2654435761+1
	for i := range out {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		out[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[x>>58]
	}
	return string(out)
}

// putLarge writes an object of a size.
func (r *rig) putLarge(name string, size, seed int) {
	r.Helper()
	_, err := r.api.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "large", Name: name}, Data: map[string]string{"large": incompressible(size, seed), "v": strconv.Itoa(seed)}})
	r.must(err)
}

// Objects that are larger than a message go in several.
func TestLargeObjects(t *testing.T) {
	s := newScene(t)
	s.putLarge("large", 1_500_000, 1)
	s.putLarge("other", 1_500_000, 2)
	want := s.now()
	want["large"], want["other"] = "1", "2"
	s.replica.has(want)
	two := s.rig.replica("two") // from a snapshot
	two.has(want)
	s.must(s.api.Delete(configMaps, "large", "large"))
	s.must(s.api.Delete(configMaps, "large", "other"))
	s.recovers(two)
	if n := s.seen.lists(); n > 0 {
		t.Errorf("the replica has listed %d times more", n)
	}
	s.unmixed()
}

// A reader that is away for longer than the log reaches begins again.
func TestLogIsTooShort(t *testing.T) {
	r := newRig(t)
	r.size = 512 << 10
	s := newSceneOf(t, r)
	s.to.setDown(true)
	for i := range 40 {
		s.putLarge("large", 30_000, i)
	}
	s.must(s.api.Delete(configMaps, "large", "large"))
	s.eventually("a log that is full", func() error {
		if all := s.records(); len(all) == 0 || all[0].sequence < 10 { // none: the log has moved on meanwhile
			return fmt.Errorf("it has %d messages, from the beginning", len(all))
		}
		return nil
	})
	s.to.setDown(false)
	s.recovers()
	if s.seen.lists() == 0 {
		t.Error("the replica has not listed again")
	}
	s.unmixed()
}

// The watch of a resource without changes ends after its beginning has left the log. It goes on
// where the log was read, without another list.
func TestQuietResource(t *testing.T) {
	r := newRig(t)
	r.size = 512 << 10
	s := newSceneOf(t, r)
	_, err := s.api.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "quiet"}})
	s.must(err)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	var inf *mirror.Informer
	s.eventually("pods", func() error {
		c, err := s.replica.mirror.Cluster("prod")
		s.must(err)
		res, err := c.ResourceFor(s.ctx, pods)
		if err == nil {
			inf, err = c.Ready(s.ctx, res, "")
		}
		return err
	})
	for i := range 40 {
		s.putLarge("large", 30_000, i)
		if i%5 == 0 { // the replica must not be slower than the log forgets
			want := s.now()
			want["large"] = strconv.Itoa(i)
			s.replica.has(want)
		}
	}
	s.must(s.api.Delete(configMaps, "large", "large"))
	s.replica.has(s.now())
	watches := inf.Engine().Status().Watches
	s.api.SetDown(true) // the watches of the replica end, because the publisher is out of date
	s.eventually("the end of a watch", func() error {
		if p := inf.Engine().Status().Phase; p == informer.Watching {
			return errors.New("it goes on")
		}
		return nil
	})
	s.api.SetDown(false)
	s.recovers()
	s.eventually("another watch", func() error {
		if st := inf.Engine().Status(); st.Phase != informer.Watching || st.Watches == watches {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	if n := inf.Engine().Status().Lists; n != 1 {
		t.Errorf("the replica has listed %d times", n)
	}
}

// lostAcknowledgement breaks the connection of the publisher before it is told that messages
// were stored.
func (s *scene) lostAcknowledgement() {
	s.Helper()
	want := 2
	if s.replicas > 1 {
		want = 1 // at a time, see streamWriter
	}
	begun := time.Now()
	for n := 0; n < want; {
		s.from.block(toClient)
		before := len(s.records())
		s.write("a")
		for blocked := time.Now(); n < want && time.Since(blocked) < 3*time.Second; time.Sleep(20 * time.Millisecond) {
			n = len(s.records()) - before
		}
		if n < want { // an earlier message waits for its acknowledgement: once more
			s.from.release()
		}
		if time.Since(begun) > 2*time.Minute {
			s.Fatalf("%d messages without acknowledgement", n)
		}
	}
	s.from.cut()
	s.from.release()
	s.recovers()
}
