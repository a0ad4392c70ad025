package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// A mirror with a history is killed at any write to its disk: while it opens the history,
// lists, lists again, records, makes a checkpoint, drops a window. What a crash leaves on
// the disk is opened and compared with what the cluster went through. The next run of the
// mirror goes on with one of these disks. CRASHES is the number of crashes, 1,000 if it is
// not set; CRASH_SEED repeats a run.
func TestCrashesAtAnyInstant(t *testing.T) {
	crashes, seed := 1000, rand.Uint64()
	if s := os.Getenv("CRASHES"); s != "" {
		crashes, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("CRASH_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("CRASH_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	sum := crashStats{}
	for sum.crashes < crashes && !t.Failed() {
		synctest.Test(t, func(t *testing.T) {
			l := newLife(t, rng)
			defer l.end()
			for range 6 {
				l.run(&sum)
			}
		})
	}
	t.Logf("%+v", sum)
	if 2*sum.moments < sum.crashes || sum.restored < sum.crashes/4 || sum.gaps == 0 {
		t.Errorf("too little was compared: %+v", sum)
	}
}

// crashStats count what was compared.
type crashStats struct {
	crashes  int
	changes  int // that the histories had
	moments  int // states that were read and are in no gap
	inGap    int // states that are
	restored int // newest states
	refused  int // newest states that the history did not have
	gaps     int
}

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	leases     = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// life is a cluster whose mirror is killed again and again.
type life struct {
	*testing.T
	rng    *rand.Rand
	server *fakeapi.Cluster
	config *rest.Config
	end    func()
	fs     *vfs.MemFS
	writes int
	truth  map[schema.GroupVersionResource][]fakeapi.Change
	next   map[schema.GroupVersionResource]uint64

	mu    sync.Mutex // for what follows, and for rng in a run
	store *Store
	left  []wreck
	every int // about one write of so many is a crash
}

// wreck is what a crash leaves.
type wreck struct {
	fs      *vfs.MemFS
	ordered bool // no part of the directory is missing
	acked   map[Resource]acked
}

// acked is what had been acknowledged as durable before a crash.
type acked struct {
	next uint64
	seen progress
}

func newLife(t *testing.T, rng *rand.Rand) *life {
	l := &life{T: t, rng: rng, fs: vfs.NewCrashableMem(), every: 12,
		truth: map[schema.GroupVersionResource][]fakeapi.Change{}, next: map[schema.GroupVersionResource]uint64{}}
	l.server = fakeapi.New(fakeapi.Options{SystemNamespace: func(ns *corev1.Namespace) { ns.UID = "1" }})
	l.config, l.end = fakeapi.InProcess(l.server)
	for range 120 {
		l.write()
	}
	return l
}

// write changes an object of the cluster.
func (l *life) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	value := fmt.Sprint("value-", l.writes)
	meta := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("o", l.rng.IntN(100)), ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "by-" + value, Operation: "Update", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`)},
	}}
	var err error
	switch n := l.rng.IntN(20); {
	case n == 0 && l.server.Peek(configMaps, "default", meta.Name) != nil:
		err = l.server.Delete(configMaps, "default", meta.Name)
	case n < 4:
		meta.Name = fmt.Sprint("o", l.rng.IntN(3))
		_, err = l.server.Put(&coordinationv1.Lease{ObjectMeta: meta, Spec: coordinationv1.LeaseSpec{HolderIdentity: &value}})
	default:
		_, err = l.server.Put(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"v": value}})
	}
	must(l.T, err)
	for _, gvr := range []schema.GroupVersionResource{configMaps, leases} {
		changes, ok := l.server.Changes(gvr, l.next[gvr])
		if !ok {
			l.Fatal("the cluster has forgotten")
		}
		l.truth[gvr] = append(l.truth[gvr], changes...)
		l.next[gvr] += uint64(len(changes))
	}
}

// wreckage decides at each write to the disk whether it is a crash.
func (l *life) wreckage(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rng.IntN(l.every) > 0 {
		return nil
	}
	w := wreck{acked: map[Resource]acked{}}
	if s := l.store; s != nil && s.mu.TryLock() {
		for _, r := range s.series {
			if r.mu.TryLock() {
				w.acked[r.Of] = acked{r.next, r.seen}
				r.mu.Unlock()
			}
		}
		s.mu.Unlock()
	}
	// The process is killed, the machine loses what was not synced, or a part of that.
	percent := []int{0, 100, l.rng.IntN(101)}[l.rng.IntN(3)]
	w.fs = l.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(l.rng.Uint64(), 0))})
	w.ordered = percent == 0 || percent == 100
	l.left = append(l.left, w)
	return nil
}

func (l *life) draw(n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rng.IntN(n)
}

var discard = slog.New(slog.DiscardHandler)

// run runs the mirror for a while, and looks at what its crashes leave.
func (l *life) run(sum *crashStats) {
	l.left = nil
	store, err := Open("history", Options{Logger: discard, fs: errorfs.Wrap(l.fs, errorfs.InjectorFunc(l.wreckage)), leastChanges: 25, For: 10 * time.Minute})
	must(l.T, err)
	l.mu.Lock()
	l.store = store
	l.mu.Unlock()
	m, err := mirror.New(mirror.Options{
		Resources: []string{"configmaps", "leases"}, Retain: 5, Backlog: 40, Logger: discard,
		Journal: NewRecording(store, RecordingOptions{Thin: map[string]time.Duration{"leases.coordination.k8s.io": 5 * time.Second}}),
	})
	must(l.T, err)
	must(l.T, m.Set(l.Context(), map[string]*rest.Config{"test": l.config}))
	if l.draw(2) == 0 {
		synctest.Wait()
	}
	for range 20 + l.draw(20) {
		switch l.draw(20) {
		case 0: // a relist
			l.server.SetDown(true)
			l.server.CloseWatches(configMaps)
			l.write()
			l.write()
			l.server.Compact()
			l.server.SetDown(false)
		case 1: // more than can wait
			for range 100 {
				l.write()
			}
		case 2:
			must(l.T, store.Retain(time.Now()))
		case 3:
			time.Sleep(time.Duration(l.draw(120)) * time.Second)
		default:
			for range l.draw(5) {
				l.write()
			}
			if l.draw(2) == 0 {
				synctest.Wait()
			}
			time.Sleep(time.Duration(l.draw(4000)) * time.Millisecond)
		}
	}
	must(l.T, m.Close(context.Background()))
	must(l.T, store.Close())
	l.store = nil
	goOn := l.draw(max(len(l.left), 1))
	for i, w := range l.left {
		if l.look(w, sum) && i >= goOn {
			l.fs, goOn = w.fs, len(l.left)
		}
	}
	if l.draw(3) == 0 { // the mirror is away for long
		for range l.draw(30) {
			l.write()
		}
		if l.draw(2) == 0 {
			l.server.Compact()
		}
		time.Sleep(time.Duration(l.draw(600)) * time.Second)
	}
}

// look compares what a crash has left with the truth.
func (l *life) look(w wreck, sum *crashStats) (usable bool) {
	sum.crashes++
	s, err := Open("history", Options{Logger: discard, fs: w.fs.CrashClone(vfs.CrashCloneCfg{}), leastChanges: 25})
	if !w.ordered && err != nil && strings.Contains(err.Error(), "could not open manifest file") {
		return false // the names of two files appeared in the other order, which a journal prevents
	}
	must(l.T, err)
	defer func() { must(l.T, s.Close()) }()
	for of, before := range w.acked {
		r := s.Find(of)
		if r == nil {
			if before.next > 1 {
				l.Errorf("%s is missing", of)
			}
			continue
		}
		if r.next < before.next || r.seen.ResourceVersion < before.seen.ResourceVersion || r.seen.Time.Before(before.seen.Time) {
			l.Errorf("%s: acknowledged was %+v, there is %d %+v", of, before, r.next, r.seen)
		}
	}
	for _, r := range s.All() {
		if len(r.windows) == 0 {
			continue
		}
		gvr := configMaps
		if r.Of.Resource == "leases" {
			gvr = leases
		} else {
			l.followed(r, sum)
			for range 3 {
				l.moment(r, r.windows[0].ResourceVersion+uint64(l.draw(int(r.seen.ResourceVersion-r.windows[0].ResourceVersion)+1)), sum)
			}
		}
		l.newest(r, gvr, sum)
	}
	return true
}

// between returns the changes after a version, up to another.
func (l *life) between(gvr schema.GroupVersionResource, after, to uint64) []fakeapi.Change {
	all := l.truth[gvr]
	find := func(v uint64) int {
		return sort.Search(len(all), func(i int) bool { return versionOf(all[i].Now) > v })
	}
	return all[find(after):find(max(after, to))]
}

func versionOf(o fakeapi.Object) uint64 {
	v, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return v
}

// followed checks that the changes of a series are the cluster's, in order, and that gaps
// are where some are missing.
func (l *life) followed(r *Series, sum *crashStats) {
	sum.gaps += len(r.gaps)
	at := r.windows[0].ResourceVersion
	begun := r.windows[0].First > 1
	seq := r.windows[0].First
	// missed checks that nothing happened between two versions, or that they are in a gap.
	missed := func(to uint64) {
		n := len(l.between(configMaps, at, to))
		known := !begun || slices.ContainsFunc(r.gaps, func(g Gap) bool { return len(l.between(configMaps, at, min(g.After, to))) == 0 && to <= g.Before })
		if n > 0 && !known {
			l.Errorf("%d changes between %d and %d are missing before change %d, and the gaps are %+v", n, at, to, seq, slices.DeleteFunc(slices.Clone(r.gaps), func(g Gap) bool { return g.Before < at || g.After > to }))
		}
	}
	log := Log{series: r, match: func(string) bool { return true }, next: seq}
	for c, err := range log.Read(context.Background(), time.Time{}) {
		must(l.T, err)
		if r.seen.Listing && c.Seq >= r.seen.Since {
			return
		}
		sum.changes++
		if seq = c.Seq; c.Relist {
			missed(c.SeriesVersion)
			at, begun = c.SeriesVersion, true
			continue
		}
		happened := l.between(configMaps, c.ResourceVersion-1, c.ResourceVersion)
		if len(happened) != 1 || happened[0].Now.GetNamespace()+"/"+happened[0].Now.GetName() != c.Key || (happened[0].Type == watch.Deleted) != (c.Type == Deleted) || !bytes.Contains(c.Object, []byte(valueOf(happened[0].Now))) {
			l.Errorf("change %d of %s at %d did not happen: %+v", c.Seq, c.Key, c.ResourceVersion, happened)
		}
		missed(c.ResourceVersion - 1)
		at = c.ResourceVersion
	}
	seq = r.next
	missed(r.seen.ResourceVersion)
}

func valueOf(o fakeapi.Object) string {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return `"` + o.Data["v"] + `"`
	case *coordinationv1.Lease:
		return `"` + *o.Spec.HolderIdentity + `"`
	}
	panic(fmt.Sprintf("%T", o))
}

// state is the truth at a version.
func (l *life) state(gvr schema.GroupVersionResource, version uint64) map[string]fakeapi.Object {
	out := map[string]fakeapi.Object{}
	for _, c := range l.between(gvr, 0, version) {
		key := c.Now.GetNamespace() + "/" + c.Now.GetName()
		if out[key] = c.Now; c.Type == watch.Deleted {
			delete(out, key)
		}
	}
	return out
}

// moment compares the state at a version.
func (l *life) moment(r *Series, version uint64, sum *crashStats) {
	s, err := r.AtVersion(version)
	if begin := (*BeginError)(nil); errors.As(err, &begin) && begin.Of == r.Of {
		return
	}
	must(l.T, err)
	defer s.Close()
	if s.Gap != nil {
		sum.inGap++
		return
	}
	sum.moments++
	want := l.state(configMaps, version)
	n := 0
	for v, err := range s.All("", "") {
		must(l.T, err)
		if o := want[v.Key]; o == nil || versionOf(o) != v.ResourceVersion || !bytes.Contains(v.Object, []byte(valueOf(o))) {
			l.Errorf("at %d, %s has version %d: %s", version, v.Key, v.ResourceVersion, v.Object)
		}
		n++
	}
	if n != len(want) {
		l.Errorf("at %d there are %d objects, not %d; seen %+v, windows %+v, gaps %+v", version, n, len(want), r.seen, r.windows, r.gaps)
	}
}

// newest compares the state that a mirror would start from.
func (l *life) newest(r *Series, gvr schema.GroupVersionResource, sum *crashStats) {
	found := map[string]string{}
	version, err := r.Newest(func(v Version, json []byte) error {
		found[v.Key] = string(json)
		return nil
	})
	must(l.T, err)
	if version == 0 {
		sum.refused++
		return
	}
	sum.restored++
	want := l.state(gvr, version)
	for key, o := range want {
		for _, part := range []string{valueOf(o), `"resourceVersion":"` + o.GetResourceVersion() + `"`, `"manager":"by-` + valueOf(o)[1:]} {
			if !bytes.Contains([]byte(found[key]), []byte(part)) {
				l.Errorf("the newest state, at %d, has %s without %s: %s", version, key, part, found[key])
			}
		}
	}
	if len(found) != len(want) {
		l.Errorf("the newest state, at %d, has %d %s, not %d", version, len(found), gvr.Resource, len(want))
	}
}

// If the newest state cannot be read, the mirror lists, and the history goes on with what
// the list has.
func TestAnUnreadableEndIsBegunAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, rand.New(rand.NewPCG(1, 1)))
		defer l.end()
		store, err := Open("history", Options{Logger: discard, InMemory: true})
		must(t, err)
		defer func() { must(t, store.Close()) }()
		for run := range 2 {
			m, err := mirror.New(mirror.Options{Resources: []string{"configmaps"}, Logger: discard, Journal: NewRecording(store, RecordingOptions{})})
			must(t, err)
			must(t, m.Set(t.Context(), map[string]*rest.Config{"test": l.config}))
			time.Sleep(time.Second)
			for range 10 {
				l.write()
			}
			time.Sleep(time.Second)
			must(t, m.Close(context.Background()))
			r := store.Find(store.All()[0].Of)
			var sum crashStats
			l.moment(r, r.seen.ResourceVersion, &sum)
			l.newest(r, configMaps, &sum)
			if sum.moments != 1 || sum.restored != 1 {
				t.Errorf("run %d: the end cannot be read: %+v", run, sum)
			}
			state, err := r.newest()
			must(t, err)
			for v, err := range state.All("", "") {
				must(t, err)
				must(t, store.set(versionKey(r.id, r.windows[0].First, v.Key, v.Seq), []byte{0}))
				break
			}
			must(t, state.Close())
			l.server.CloseWatches(configMaps)
			for range 5 {
				l.write()
			}
		}
	})
}

// A cluster that has taken the name of another has a history of its own.
func TestAnotherClusterOfTheSameName(t *testing.T) {
	s, err := Open("history", Options{Logger: discard, InMemory: true})
	must(t, err)
	defer func() { must(t, s.Close()) }()
	for _, uid := range []string{"1", "2"} {
		of := testPods
		of.ClusterUID = uid
		w, err := s.Writer(of)
		must(t, err)
		must(t, w.Append(Batch{Time: time.Now(), ResourceVersion: 5, Changes: []Version{{Type: Added, Key: "a/" + uid, ResourceVersion: 5, Object: []byte(`{}`)}}}))
		must(t, w.Close(time.Now()))
	}
	for _, uid := range []string{"1", "2", ""} { // without a uid, the newest
		of := testPods
		of.ClusterUID = uid
		state, err := s.Find(of).AtVersion(5)
		must(t, err)
		for _, other := range []string{"1", "2"} {
			_, ok, err := state.Get("a/" + other)
			must(t, err)
			if want := other == uid || uid == "" && other == "2"; ok != want {
				t.Errorf("cluster %q has the object of %q: %v", uid, other, ok)
			}
		}
		must(t, state.Close())
	}
}
