package informer_test

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// TestModel runs random histories: objects come, change, go and come again;
// the server and the network fail in every way they know; the informer is
// stopped, started and emptied; those who follow it come and go and are slow.
//
// At every step, whatever has gone wrong:
//   - the store is the state the server had at the store's resourceVersion,
//     which does not go back;
//   - each event that anybody is told fits the state that he has been told of
//     so far, so nothing is lost, doubled or out of order;
//   - whoever is told that he may resume from a version knows the very state
//     the server had then, and resuming from it brings him to the present;
//   - whoever does not hold himself up knows the state of the store;
//   - no failure is followed by a hail of requests.
//
// Once what is wrong has been mended, the store and everybody who follows it
// have the state of the server. When all is stopped, nothing runs.
func TestModel(t *testing.T) {
	for _, scope := range scopes {
		t.Run(scope.name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				run := rapid.SampledFrom(histories).Draw(t, "kept as").run
				rapid.SyncTest(t, func(t *rapid.T) { run(t, scope) })
			})
		})
	}
}

type historyOf struct {
	name string
	run  func(*rapid.T, scope)
}

func (h historyOf) String() string { return h.name }

var histories = []historyOf{
	{"typed", history[*corev1.ConfigMap]},
	{"unstructured", history[*unstructured.Unstructured]},
	{"metadata", history[*metav1.PartialObjectMetadata]},
	{"typed, compact", compactHistory[*corev1.ConfigMap]},
	{"unstructured, compact", compactHistory[*unstructured.Unstructured]},
	{"metadata, compact", compactHistory[*metav1.PartialObjectMetadata]},
}

// state is what is known of the objects at one moment: uid and version by key.
type state map[string]string

// moment is the state of the server from a version on.
type moment struct {
	version uint64
	state   state
}

// scope is a part of the resource that an informer may be of.
type scope struct {
	name string
	opts []informer.Option
	has  func(fakeapi.Object) bool
}

var scopes = []scope{
	{"everything", nil, func(fakeapi.Object) bool { return true }},
	{"a namespace", []informer.Option{informer.InNamespace("a")}, func(o fakeapi.Object) bool { return o.GetNamespace() == "a" }},
	{"a label", []informer.Option{informer.LabelSelector("chosen=yes")}, func(o fakeapi.Object) bool { return o.GetLabels()["chosen"] == "yes" }},
	{"two namespaces", []informer.Option{informer.InNamespace("a", "a-b")}, func(o fakeapi.Object) bool { return o.GetNamespace() != "b" }},
}

// machine is a history in progress.
type machine[T informer.Object] struct {
	ctx     context.Context
	server  *fakeapi.Cluster
	inf     *informer.Informer[T]
	scope   scope
	truth   []moment // by version
	follow  []*witness[T]
	views   []pinned[T]
	mend    []func()
	running bool
	ended   chan error // of Run
	version uint64     // of the store
	emptied uint64     // nobody can resume from before this version
	serial  int

	mu      sync.Mutex
	instant time.Time
	hail    int // requests at the instant
}

// pinned is a view and what it held at first.
type pinned[T informer.Object] struct {
	*informer.View[T]
	want []T
}

func compactHistory[T informer.Object](t *rapid.T, scope scope) {
	scope.opts = append(slices.Clone(scope.opts), informer.Compact())
	history[T](t, scope)
}

func history[T informer.Object](t *rapid.T, scope scope) {
	m := &machine[T]{
		server: fakeapi.New(fakeapi.Options{NoWatchList: rapid.Bool().Draw(t, "no WatchList")}),
		scope:  scope,
	}
	var cancel context.CancelFunc
	m.ctx, cancel = context.WithCancel(context.Background())
	config, stop := fakeapi.InProcess(m.server)
	conn, err := cluster.New("test", config)
	check(t, err)
	opts := append([]informer.Option{informer.Resource("configmaps"), informer.PageSize(2), informer.Logger(slog.New(slog.NewTextHandler(io.Discard, nil)))}, m.scope.opts...)
	if m.single() {
		opts = append(opts, informer.Retain(1000))
	}
	m.inf, err = informer.New[T](conn, opts...)
	check(t, err)
	m.server.Inject(m.hailing)
	m.record(t)
	defer func() {
		cancel()
		for _, w := range m.follow {
			w.unblock()
		}
		_ = m.inf.Stop(context.Background())
		for _, v := range m.views {
			v.Release()
		}
		stop()
		conn.Close()
	}()
	if rapid.IntRange(0, 9).Draw(t, "begin stopped") > 0 {
		m.handler(t)
		m.loop(t)
		m.run()
	}
	t.Repeat(map[string]func(*rapid.T){
		"write": m.write, "elsewhere": m.elsewhere, "time": m.sleep, "compact": m.compact,
		"break": m.breakConnections, "fault": m.fault, "mend": m.repair, "trouble": m.trouble, "settle": m.settle,
		"start": m.start, "stop": m.stop, "empty": m.empty,
		"handler": m.handler, "loop": m.loop, "leave": m.leave, "block": m.block, "unblock": m.unblock,
		"view": m.view, "resume": m.resume,
		// Most of what happens is this.
		"write ": m.write, "time ": m.sleep, "trouble ": m.trouble, "trouble  ": m.trouble, "start ": m.start,
		"": m.check,
	})
	m.settle(t)
	m.check(t)
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// single says that the informer has one resourceVersion, that of its only scope.
func (m *machine[T]) single() bool { return m.scope.name != "two namespaces" }

// record notes the state of the server.
func (m *machine[T]) record(t *rapid.T) {
	objs, version, err := m.server.List(configMaps, "")
	check(t, err)
	s := state{}
	for _, o := range objs {
		if m.scope.has(o) {
			s[informer.Key(o)] = identity(o)
		}
	}
	m.truth = append(m.truth, moment{number(version), s})
}

func identity(o interface {
	GetResourceVersion() string
	GetLabels() map[string]string
}) string {
	return o.GetLabels()["n"] + "@" + o.GetResourceVersion()
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // "" is 0: not known
	return n
}

// at is the state of the server at a version.
func (m *machine[T]) at(version uint64) state {
	i, found := slices.BinarySearchFunc(m.truth, version, func(mo moment, v uint64) int { return int(mo.version) - int(v) })
	if !found {
		i--
	}
	return m.truth[max(i, 0)].state
}

// holds is the state of the store.
func (m *machine[T]) holds() state {
	s := state{}
	for _, o := range m.inf.List(informer.Query{}) {
		s[informer.Key(o)] = identity(o)
	}
	return s
}

// hailing is asked at every request: too many at one instant are a fault of
// the client's, and are slowed down so that the test comes to say so.
func (m *machine[T]) hailing(*fakeapi.Request) *fakeapi.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); now != m.instant {
		m.instant, m.hail = now, 0
	}
	if m.hail++; m.hail > 60 {
		return &fakeapi.Fault{Delay: time.Second}
	}
	return nil
}

// check is what holds at every step.
func (m *machine[T]) check(t *rapid.T) {
	synctest.Wait()
	m.mu.Lock()
	hail := m.hail
	m.mu.Unlock()
	if hail > 60 {
		t.Fatalf("%d requests at one instant", hail)
	}
	status := m.inf.Status()
	version := number(status.ResourceVersion)
	if version < m.version {
		t.Fatalf("the store went back from %d to %d", m.version, version)
	}
	m.version = version
	have := m.holds()
	if status.Objects != len(have) {
		t.Fatalf("%d objects are counted as %d", len(have), status.Objects)
	}
	if want := m.at(version); m.single() && status.Synced && !maps.Equal(have, want) {
		t.Fatalf("the store at %d holds %v, the server held %v", version, have, want)
	}
	if !m.single() && status.Synced {
		for _, namespace := range []string{"a", "a-b"} {
			if !m.heldSince(version, namespace, have) {
				t.Fatalf("the store at %d holds %v, which the server did not hold then or later in namespace %s", version, have, namespace)
			}
		}
	}
	if !status.Synced && m.single() && len(have) > 0 {
		t.Fatalf("the store has no list and holds %v", have)
	}
	for _, w := range m.follow {
		if wrong := w.verdict(m.at); wrong != "" {
			t.Fatal(wrong)
		}
		if got := w.knows(); w.awake(m.running) && !maps.Equal(got, have) {
			t.Fatalf("%s knows %v, the store holds %v", w, got, have)
		}
	}
	for _, v := range m.views {
		if got := v.List(informer.Query{}); !slices.EqualFunc(got, v.want, func(a, b T) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("a view of %s held %v and now holds %v", v.ResourceVersion(), v.want, got)
		}
	}
	for key := range m.truth[len(m.truth)-1].state { // one by one it is the same
		o, ok := m.inf.Get(splitKey(key))
		if ok != (have[key] != "") || ok && identity(o) != have[key] {
			t.Fatalf("%s is %v, in the list it is %s", key, o, have[key])
		}
	}
}

// heldSince says whether the server's state of a namespace was that of have at
// the version or later.
func (m *machine[T]) heldSince(version uint64, namespace string, have state) bool {
	part := func(s state) state {
		out := state{}
		for key, id := range s {
			if ns, _ := splitKey(key); ns == namespace {
				out[key] = id
			}
		}
		return out
	}
	want := part(have)
	return maps.Equal(part(m.at(version)), want) || slices.ContainsFunc(m.truth, func(mo moment) bool {
		return mo.version >= version && maps.Equal(part(mo.state), want)
	})
}

// settle mends everything and waits until all is as it ought to be.
func (m *machine[T]) settle(t *rapid.T) {
	m.repair(t)
	for _, w := range m.follow {
		w.unblock()
	}
	if !m.running {
		m.run()
	}
	// A watch without bookmarks may last ten minutes yet.
	ctx, cancel := context.WithTimeout(m.ctx, 25*time.Minute)
	defer cancel()
	if err := m.inf.WaitFor(ctx, m.server.ResourceVersion()); err != nil {
		t.Fatalf("%v; %+v", err, m.inf.Status())
	}
	for {
		changed := m.inf.StatusChanged()
		synctest.Wait()
		if m.inf.Status().Phase == informer.Watching {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("all is well and the status stays %+v", m.inf.Status())
		}
	}
	want := m.at(number(m.server.ResourceVersion()))
	if have := m.holds(); !maps.Equal(have, want) {
		t.Fatalf("the store holds %v, the server %v", have, want)
	}
	if s := m.inf.Status(); s.Phase != informer.Watching || !s.Synced || s.Lag != 0 {
		t.Fatalf("all is well and the status is %+v", s)
	}
	for _, w := range m.follow {
		if got := w.knows(); !maps.Equal(got, want) || !w.isSynced() {
			t.Fatalf("%s knows %v, synced %v; the server has %v", w, got, w.isSynced(), want)
		}
		if w.registration == nil {
			continue
		}
		if s := w.registration.Status(); s.Lag != 0 || s.Backlog != 0 || !s.Synced || s.Panics != 0 {
			t.Fatalf("%s has been told everything and says %+v", w, s)
		}
	}
}

// run starts the informer in the background.
func (m *machine[T]) run() {
	m.running, m.ended = true, make(chan error, 1)
	go func() { m.ended <- m.inf.Run(m.ctx) }()
}

func splitKey(key string) (namespace, name string) {
	for i := range key {
		if key[i] == '/' {
			return key[:i], key[i+1:]
		}
	}
	return "", key
}

func (m *machine[T]) pick(t *rapid.T) *witness[T] {
	if len(m.follow) == 0 {
		t.Skip("nobody follows")
	}
	return m.follow[rapid.IntRange(0, len(m.follow)-1).Draw(t, "who")]
}
