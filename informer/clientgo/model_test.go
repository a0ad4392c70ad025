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
// with one handler: pods are created, changed, deleted and recreated; the
// source fails in every way the protocol allows; handlers are added, removed
// and slow.
//
// It runs them on client-go's implementation too, to test the model itself. The
// last four conditions of this list hold for Tidings only.
//
// At every step, whatever has failed:
//
//   - The store is the state that the server had at LastSyncResourceVersion,
//     which decreases only if the server was restored.
//   - Indexes, keys and single objects agree with the list.
//   - Each event of a handler fits the state that its earlier events led to,
//     and its old object is the last one the handler got.
//   - A handler that is not blocked has the state of the store.
//   - The initial list is a state that the server had, or for a late handler
//     that of the store. It has been delivered when the informer and the
//     handler report that they have synced, and not before.
//   - A removed handler gets no events.
//   - Resyncs go to the handlers that asked for them.
//   - The status has the right number of objects and no lag.
//   - Objects, keys and the results of indexes are ordered by key.
//   - Every object has been transformed once.
//   - No failure leads to a burst of requests.
//
// After the faults are cleared, all have the state of the server. After the
// stop, no goroutine runs.
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
	server  *flakyServer
	inf     cache.SharedIndexInformer // nil for a controller
	store   cache.Indexer
	control interface {
		RunWithContext(context.Context)
		HasSynced() bool
		HasSyncedChecker() cache.DoneChecker
		LastSyncResourceVersion() string
	}
	resync  time.Duration // the default of handlers; 0 means no resyncs at all
	stop    context.CancelFunc
	done    chan struct{} // nil until started; closed at the end
	handled []*modelHandler
	indexes []string
	version int64
	serial  int
}

// colors are the labels of pods, which are indexed.
var colors = []string{"red", "green", "blue"}

var indexers = cache.Indexers{
	"color": func(obj any) ([]string, error) { return []string{obj.(*corev1.Pod).Labels["color"]}, nil },
	"many": func(obj any) ([]string, error) {
		p := obj.(*corev1.Pod)
		return []string{p.Namespace, p.Labels["color"], p.Namespace}, nil // one twice
	},
	"some": func(obj any) ([]string, error) {
		if p := obj.(*corev1.Pod); p.Labels["color"] == "red" {
			return []string{p.Name}, nil
		}
		return nil, nil
	},
}

// newMachine draws the server and the options of the informer.
func newMachine(t *rapid.T, k kind) *machine {
	m := &machine{ours: k.name == "tidings", server: newFlakyServer(), indexes: []string{"color"}}
	m.server.noWatchList = rapid.Bool().Draw(t, "no WatchList")
	m.server.noCache = rapid.Bool().Draw(t, "no watch cache")
	m.server.pageSize = rapid.IntRange(0, 2).Draw(t, "page size")
	if rapid.Bool().Draw(t, "resyncs") {
		m.resync = 6 * time.Minute
	}
	return m
}

// mark is a transform. Every visible object must have gone through it once.
func mark(obj any) (any, error) {
	p := obj.(*corev1.Pod)
	p.Annotations = map[string]string{"marks": p.Annotations["marks"] + "x"}
	return p, nil
}

func sharedHistory(t *rapid.T, k kind) {
	m := newMachine(t, k)
	m.inf = k.shared(m.server, &corev1.Pod{}, cache.SharedIndexInformerOptions{ResyncPeriod: m.resync, Indexers: cache.Indexers{"color": indexers["color"]}})
	m.store, m.control = m.inf.GetIndexer(), m.inf
	check(t, m.inf.SetTransform(mark))
	m.run(t, map[string]func(*rapid.T){
		"run": m.start, "handler": m.handler, "handler ": m.handler, "leave": m.leave, "index": m.index,
	})
}

func controllerHistory(t *rapid.T, k kind) {
	m := newMachine(t, k)
	h := &modelHandler{ours: m.ours, server: m.server, name: "the handler", known: map[string]*corev1.Pod{}, wantResyncs: m.resync > 0}
	store, control := k.single(cache.InformerOptions{
		ListerWatcher: m.server, ObjectType: &corev1.Pod{}, Handler: h, ResyncPeriod: m.resync,
		Indexers: cache.Indexers{"color": indexers["color"]}, Transform: mark,
	})
	m.store, m.control = store.(cache.Indexer), control
	h.synced, h.store = control.HasSynced, m.store
	m.handled = append(m.handled, h)
	m.run(t, map[string]func(*rapid.T){"run": m.start})
}

// run takes random steps until rapid has had enough.
func (m *machine) run(t *rapid.T, more map[string]func(*rapid.T)) {
	defer func() {
		for _, h := range m.handled {
			h.unblock()
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
		"write": m.write, "advance": m.advance, "time": m.sleep, "compact": m.compact, "restore": m.restore,
		"drop": m.drop, "fault": m.fault, "clear faults": m.clearFaults, "disrupt": m.disrupt, "settle": m.settle,
		"block": m.block, "unblock": m.unblock,
		// The most frequent steps.
		"write ": m.write, "time ": m.sleep, "disrupt ": m.disrupt, "disrupt  ": m.disrupt,
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

// storeState returns the state of the store.
func (m *machine) storeState() state {
	s := state{}
	for _, o := range m.store.List() {
		s[key(o.(*corev1.Pod))] = identity(o.(*corev1.Pod))
	}
	return s
}

// check checks the conditions that hold at every step.
func (m *machine) check(t *rapid.T) {
	synctest.Wait()
	if burst := m.server.requestBurst(); m.ours && burst > 60 {
		t.Fatalf("%d requests at one instant", burst)
	}
	held := slices.ContainsFunc(m.handled, func(h *modelHandler) bool { return h.blocked() })
	have := m.storeState()
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
	for _, h := range m.handled {
		if wrong := h.failure(); wrong != "" {
			t.Fatal(wrong)
		}
		if !m.running() || h.blocked() {
			continue
		}
		if got := h.state(); !maps.Equal(got, have) {
			t.Fatalf("%s knows %v, the store holds %v", h.name, got, have)
		}
		if h.synced() != m.control.HasSynced() {
			t.Fatalf("%s has synced: %t, the informer: %t", h.name, h.synced(), m.control.HasSynced())
		}
	}
}

func (m *machine) status() informer.Status {
	state, _ := clientgo.Observe(m.control)
	return state.Status()
}

// checkIndexes compares the results of the store's methods with a scan of its
// list.
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

// ordered sorts keys if the store does not promise an order.
func (m *machine) ordered(keys []string) []string {
	if m.ours {
		return keys
	}
	return slices.Sorted(slices.Values(keys))
}
