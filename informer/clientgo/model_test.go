package clientgo_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/clientgo"
)

// TestModel runs random histories of the shared informer and of the controller
// with one handler: pods come, change, go and come again; the source fails in
// every way that the protocol knows; handlers come and go and are slow.
//
// It does so on client-go's and on ours, so that the model itself is tried. The
// last four promises in this list are ours alone.
//
// At every step, whatever has gone wrong:
//   - the store is the state the server had at LastSyncResourceVersion, which
//     goes back only if the server did;
//   - indexes, keys and single objects agree with the list;
//   - each event that a handler is told fits the state that it has been told of
//     so far, and what it is told as old is what it was told last;
//   - a handler that is not held up knows the state of the store;
//   - the initial list is a state the server had, or for a late handler the
//     store's, and it has been told when the informer, and the handler, say that
//     they have synced, and not before;
//   - a handler that is removed is told nothing more;
//   - resyncs are told to those who asked for them;
//   - the status says how many objects there are and that nobody is behind;
//   - objects, keys and what an index finds are in the order of the keys;
//   - everything has been transformed once;
//   - no failure is followed by a hail of requests.
//
// Once what is wrong has been mended, all have the state of the server. When all
// is stopped, nothing runs.
func TestModel(t *testing.T) {
	for _, k := range kinds {
		for name, history := range map[string]func(*rapid.T, kind){"shared": sharedHistory, "controller": controllerHistory} {
			t.Run(k.name+" "+name, func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					rapid.SyncTest(t, func(t *rapid.T) { history(t, k) })
				})
			})
		}
	}
}

// machine is a history in progress.
type machine struct {
	ours    bool
	server  *flaky
	inf     cache.SharedIndexInformer // nil: it is a controller
	store   cache.Indexer
	control interface {
		RunWithContext(context.Context)
		HasSynced() bool
		HasSyncedChecker() cache.DoneChecker
		LastSyncResourceVersion() string
	}
	resync  time.Duration // of handlers that do not say; 0: there are no resyncs at all
	stop    context.CancelFunc
	done    chan struct{} // nil until it runs; closed when it has ended
	handled []*witness
	indexes []string
	version int64
	serial  int
}

// colours are what pods look like, and what they are indexed by.
var colours = []string{"red", "green", "blue"}

var indexers = cache.Indexers{
	"look": func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["look"]}, nil },
	"many": func(obj any) ([]string, error) {
		p := obj.(*corev1.Pod)
		return []string{p.Namespace, p.Labels["look"], p.Namespace}, nil // one twice
	},
	"some": func(obj any) ([]string, error) {
		if p := obj.(*corev1.Pod); p.Labels["look"] == "red" {
			return []string{p.Name}, nil
		}
		return nil, nil
	},
}

// newMachine draws a server and what the informer of it is made with.
func newMachine(t *rapid.T, k kind) *machine {
	m := &machine{ours: k.name == "tidings", server: newFlaky(), indexes: []string{"look"}}
	m.server.noWatchList = rapid.Bool().Draw(t, "no WatchList")
	m.server.noCache = rapid.Bool().Draw(t, "no watch cache")
	m.server.pageSize = rapid.IntRange(0, 2).Draw(t, "page size")
	if rapid.Bool().Draw(t, "resyncs") {
		m.resync = 6 * time.Minute
	}
	return m
}

// mark is a transform: everything that is seen must have gone through it once.
func mark(obj any) (any, error) {
	p := obj.(*corev1.Pod)
	p.Annotations = map[string]string{"marks": p.Annotations["marks"] + "x"}
	return p, nil
}

func sharedHistory(t *rapid.T, k kind) {
	m := newMachine(t, k)
	m.inf = k.shared(m.server, &corev1.Pod{}, cache.SharedIndexInformerOptions{ResyncPeriod: m.resync, Indexers: cache.Indexers{"look": indexers["look"]}})
	m.store, m.control = m.inf.GetIndexer(), m.inf
	check(t, m.inf.SetTransform(mark))
	m.play(t, map[string]func(*rapid.T){
		"run": m.start, "handler": m.handler, "handler ": m.handler, "leave": m.leave, "index": m.index,
	})
}

func controllerHistory(t *rapid.T, k kind) {
	m := newMachine(t, k)
	w := &witness{ours: m.ours, server: m.server, name: "the handler", known: map[string]*corev1.Pod{}, resyncs: m.resync > 0}
	store, control := k.single(cache.InformerOptions{
		ListerWatcher: m.server, ObjectType: &corev1.Pod{}, Handler: w, ResyncPeriod: m.resync,
		Indexers: cache.Indexers{"look": indexers["look"]}, Transform: mark,
	})
	m.store, m.control = store.(cache.Indexer), control
	w.synced, w.store = control.HasSynced, m.store
	m.handled = append(m.handled, w)
	m.play(t, map[string]func(*rapid.T){"run": m.start})
}

// play takes steps at random until rapid has had enough.
func (m *machine) play(t *rapid.T, more map[string]func(*rapid.T)) {
	defer func() {
		for _, w := range m.handled {
			w.unblock()
		}
		m.halt()
	}()
	if rapid.IntRange(0, 9).Draw(t, "begin stopped") > 0 {
		if m.inf != nil {
			m.handler(t)
		}
		m.start(t)
	}
	steps := map[string]func(*rapid.T){
		"write": m.write, "elsewhere": m.elsewhere, "time": m.sleep, "compact": m.compact, "restore": m.restore,
		"drop": m.drop, "fault": m.fault, "mend": m.mend, "trouble": m.trouble, "settle": m.settle,
		"block": m.block, "unblock": m.unblock,
		// Most of what happens is this.
		"write ": m.write, "time ": m.sleep, "trouble ": m.trouble, "trouble  ": m.trouble,
		"": m.check,
	}
	maps.Copy(steps, more)
	t.Repeat(steps)
	m.settle(t)
	m.check(t)
	m.end(t)
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) running() bool { return m.done != nil }

// start runs the informer in the background.
func (m *machine) start(t *rapid.T) {
	if m.running() {
		t.Skip("it runs")
	}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(klog.NewContext(context.Background(), klog.Logger{})) // a quiet logger
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		m.control.RunWithContext(ctx)
	}()
}

func (m *machine) halt() {
	if m.running() {
		m.stop()
		<-m.done
	}
}

// holds is the state of the store.
func (m *machine) holds() state {
	s := state{}
	for _, o := range m.store.List() {
		s[key(o.(*corev1.Pod))] = identity(o.(*corev1.Pod))
	}
	return s
}

// check is what holds at every step.
func (m *machine) check(t *rapid.T) {
	synctest.Wait()
	if hail := m.server.hailed(); m.ours && hail > 60 {
		t.Fatalf("%d requests at one instant", hail)
	}
	held := slices.ContainsFunc(m.handled, func(w *witness) bool { return !w.awake() })
	have := m.holds()
	version := number(m.control.LastSyncResourceVersion())
	if version < m.version && version%10 == m.version%10 {
		t.Fatalf("it went back from %d to %d", m.version, version)
	}
	m.version = version
	if m.inf != nil || !held { // one handler keeps its controller waiting
		if m.control.HasSynced() != (version != 0) {
			t.Fatalf("it is at version %d, and has synced: %t", version, m.control.HasSynced())
		}
		if want := m.server.at(version); version != 0 && !maps.Equal(have, want) {
			t.Fatalf("the store at %d holds %v, the server held %v", version, have, want)
		}
		if own := number(m.store.LastStoreSyncResourceVersion()); own != version {
			t.Fatalf("the store says it is at %d, the informer at %d", own, version)
		}
	}
	m.checkIndexes(t, have)
	if m.ours {
		s := m.status()
		if s.Objects != len(have) || s.Synced != m.control.HasSynced() || len(s.Handlers) != len(m.handled) || !held && m.running() && s.Lag > 0 {
			t.Fatalf("it holds %v and says %+v", have, s)
		}
	}
	for _, w := range m.handled {
		if wrong := w.verdict(); wrong != "" {
			t.Fatal(wrong)
		}
		if !m.running() || !w.awake() {
			continue
		}
		if got := w.knows(); !maps.Equal(got, have) {
			t.Fatalf("%s knows %v, the store holds %v", w.name, got, have)
		}
		if w.synced() != m.control.HasSynced() {
			t.Fatalf("%s has synced: %t, the informer: %t", w.name, w.synced(), m.control.HasSynced())
		}
	}
}

func (m *machine) status() informer.Status {
	state, _ := clientgo.Observe(m.control)
	return state.Status()
}

// checkIndexes compares whatever the store can be asked with a scan of its list.
func (m *machine) checkIndexes(t *rapid.T, have state) {
	if keys := m.ordered(m.store.ListKeys()); !slices.Equal(keys, slices.Sorted(maps.Keys(have))) {
		t.Fatalf("the keys are %v, the objects %v", keys, have)
	}
	scan := map[string]map[string][]string{} // index, value: keys in order
	for _, o := range m.store.List() {
		p := o.(*corev1.Pod)
		if one, ok, err := m.store.GetByKey(key(p)); err != nil || !ok || one != o {
			t.Fatalf("%s is %v, in the list it is %v", key(p), one, o)
		}
		if marks := p.Annotations["marks"]; marks == "" || m.ours && marks != "x" {
			t.Fatalf("%s has been transformed otherwise than once: %v", key(p), p.Annotations)
		}
		for _, name := range m.indexes {
			values, _ := indexers[name](p)
			slices.Sort(values)
			for _, value := range slices.Compact(values) {
				if scan[name] == nil {
					scan[name] = map[string][]string{}
				}
				scan[name][value] = append(scan[name][value], key(p))
			}
		}
	}
	if _, ok, _ := m.store.GetByKey("ns/never"); ok {
		t.Fatal("it has what never was")
	}
	for _, name := range m.indexes {
		if values := m.store.ListIndexFuncValues(name); !slices.Equal(slices.Sorted(slices.Values(values)), slices.Sorted(maps.Keys(scan[name]))) {
			t.Fatalf("index %s has the values %v, a scan finds %v", name, values, scan[name])
		}
		for value, want := range scan[name] {
			found, err := m.store.ByIndex(name, value)
			keys, err2 := m.store.IndexKeys(name, value)
			check(t, errors.Join(err, err2))
			var by []string
			for _, o := range found {
				if p := o.(*corev1.Pod); have[key(p)] == identity(p) {
					by = append(by, key(p))
				}
			}
			if want = m.ordered(want); !slices.Equal(m.ordered(by), want) || !slices.Equal(m.ordered(keys), want) {
				t.Fatalf("index %s has %v and the keys %v under %q, a scan finds %v", name, by, keys, value, want)
			}
		}
	}
}

// ordered is what keys should be in the order of.
func (m *machine) ordered(keys []string) []string {
	if m.ours {
		return keys
	}
	return slices.Sorted(slices.Values(keys))
}
