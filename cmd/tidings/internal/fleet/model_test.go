package fleet_test

import (
	"errors"
	"flag"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"pgregory.net/rapid"
)

// TestModel runs random histories: objects come, change and go while connections break and are
// held up, publishers come, go and are told that they have lost the lease, messages and
// streams vanish, and the API server fails. Whatever has happened:
//   - what each replica delivers is the history of the cluster, see witness.verdict;
//   - a read of the newest state has it, or fails;
//   - epochs are never mixed in the log;
//   - when nothing fails any more, every replica has the state of the cluster.
func TestModel(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		t.Cleanup(func() { _ = flag.Set("rapid.checks", checks.DefValue) })
		_ = flag.Set("rapid.checks", "3") // more by hand: a history takes seconds
	}
	rapid.Check(t, func(rt *rapid.T) {
		if !t.Run("history", func(t *testing.T) { history(t, rt) }) {
			rt.Fatal("see above")
		}
	})
}

func history(t *testing.T, rt *rapid.T) {
	r := newRig(t)
	if rapid.Bool().Draw(rt, "short log") {
		r.size = 64 << 10
	}
	s := newSceneOn(r)
	two := r.replica("two")
	two.has(s.now())
	seen := two.witness("two")
	s.prober(two)
	publishers, vanished := 1, false
	var spare *part
	steps := rapid.IntRange(4, 12).Draw(rt, "steps")
	for range steps {
		name := rapid.SampledFrom([]string{"write", "write ", "delete", "cut", "hold up", "other publisher", "end", "vanish", "log", "snapshots", "API", "expire", "settle"}).Draw(rt, "step")
		switch name {
		case "write", "write ":
			for range rapid.IntRange(1, 30).Draw(rt, "times") {
				s.write(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "name"))
			}
		case "delete":
			s.remove("c")
		case "cut":
			rapid.SampledFrom([]*proxy{s.from, s.to}).Draw(rt, "connection").cut()
		case "hold up":
			p := rapid.SampledFrom([]*proxy{s.from, s.to}).Draw(rt, "connection")
			p.block(rapid.SampledFrom([]int{toServer, toClient}).Draw(rt, "way"))
			for range 5 {
				s.write("a")
			}
			if rapid.Bool().Draw(rt, "breaks") {
				p.cut()
			}
			p.release()
		case "other publisher":
			if spare != nil {
				spare.stop()
			}
			publishers++
			spare = r.publisher("publisher " + strconv.Itoa(publishers))
		case "end":
			_, _ = s.js().Publish(s.ctx, "tidings.log.prod.end", nil) // there may be no log
		case "vanish":
			vanished = true
			s.to.block(toClient)
			for range 3 {
				s.write("b")
			}
			if st, err := s.js().Stream(s.ctx, logOfProd); err == nil {
				state := st.CachedInfo().State
				for back := range rapid.Uint64Range(0, 4).Draw(rt, "back") {
					_ = st.DeleteMsg(s.ctx, state.LastSeq-min(back, state.LastSeq))
				}
			}
			s.to.cut()
			s.to.release()
		case "log", "snapshots":
			stream := map[string]string{"log": logOfProd, "snapshots": snapshotsOfProd}[name]
			if st, err := s.js().Stream(s.ctx, stream); err == nil && rapid.Bool().Draw(rt, "purge") {
				_ = st.Purge(s.ctx)
			} else if err := s.js().DeleteStream(s.ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				s.must(err)
			}
		case "API":
			s.api.SetDown(true)
			s.write("a")
			s.write("b")
			if rapid.Bool().Draw(rt, "compacted") {
				s.compact()
			}
			s.api.SetDown(false)
		case "expire":
			s.api.FailWatches(configMaps, apierrors.NewResourceExpired("too old"))
			s.write("a")
		case "settle":
			s.replica.has(s.now())
		}
	}
	s.recovers(two)
	s.check(s.seen, seen)
	if !vanished {
		s.unmixed()
	}
}
