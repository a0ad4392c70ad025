package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// The model is a list of every state that a series has had. The store must give each of
// them back, at its time and at its resourceVersion, and the changes between any two,
// across windows, checkpoints, restarts and crashes.
func TestEveryMomentCanBeRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		defer func() { _ = errors.Join(m.writer.Close(m.now), m.store.Close()) }()
		t.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"relist":  m.relist,
			"restart": m.restart,
			"crash":   m.crash,
			"seen":    m.seen,
			"":        m.check,
		})
	})
}

type modelState struct {
	time    time.Time
	version uint64
	objects map[string]string
	relist  bool // the state was found by a relist
}

type modelChange struct {
	typ         ChangeType
	key         string
	object      string
	before      string
	time        time.Time
	version     uint64
	ofState     int
	afterRelist bool
}

type model struct {
	t       *rapid.T
	fs      *vfs.MemFS
	store   *Store
	writer  *Writer
	now     time.Time
	version uint64
	states  []modelState // after each batch
	changes []modelChange
}

var testPods = Resource{Cluster: "test", ClusterUID: "1", Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

func newModel(t *rapid.T) *model {
	m := &model{t: t, fs: vfs.NewCrashableMem(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), version: 10}
	m.open()
	return m
}

func (m *model) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) open() {
	var err error
	m.store, err = Open("history", Options{fs: m.fs, leastChanges: 7, readBytes: 100})
	m.must(err)
	m.writer, err = m.store.Writer(testPods)
	m.must(err)
}

func (m *model) close() {
	m.must(m.writer.Close(m.now))
	m.must(m.store.Close())
}

func (m *model) restart(*rapid.T) {
	m.close()
	m.open()
	if _, _, clean := m.writer.Last(); !clean {
		m.t.Fatal("a writer that was closed is said not to have been")
	}
}

// crash goes on with what a crash of the machine leaves on the disk.
func (m *model) crash(t *rapid.T) {
	left := m.fs.CrashClone(vfs.CrashCloneCfg{})
	m.close()
	m.fs = left
	m.open()
	if _, _, clean := m.writer.Last(); clean && len(m.states) > 0 && m.writer.Series().Stats().Versions > 0 {
		t.Fatal("a writer that was not closed is said to have been")
	}
}

func (m *model) objects() map[string]string {
	if len(m.states) == 0 {
		return map[string]string{}
	}
	return maps.Clone(m.states[len(m.states)-1].objects)
}

var modelKeys = []string{"a/1", "a/2", "a-b/1", "a.b/x\x00y", "b/1", "b/1\x00", "b/10", "cluster"}

func (m *model) seen(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 5000).Draw(t, "ms")) * time.Millisecond)
	if len(m.states) > 0 {
		m.version++
		m.states[len(m.states)-1].version = max(m.version, m.states[len(m.states)-1].version)
	}
	m.must(m.writer.Seen(m.now, m.version))
}

// A history begins with a list.
func (m *model) append(t *rapid.T) { m.write(t, len(m.states) == 0) }
func (m *model) relist(t *rapid.T) { m.write(t, true) }

func (m *model) write(t *rapid.T, relist bool) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 2000).Draw(t, "ms")) * time.Millisecond)
	objects := m.objects()
	b := Batch{Time: m.now, Relist: relist}
	base := m.version
	for n := range rapid.IntRange(1, 6).Draw(t, "changes") {
		m.version++
		version := m.version
		key := rapid.SampledFrom(modelKeys).Draw(t, "key")
		if relist && slices.ContainsFunc(b.Changes, func(v Version) bool { return v.Key == key }) {
			continue
		}
		was, exists := objects[key]
		c := modelChange{typ: Added, key: key, object: fmt.Sprintf(`{"v":%d,"n":%d}`, version, n), before: was, time: m.now, version: version, ofState: len(m.states), afterRelist: relist}
		switch {
		case exists && rapid.Bool().Draw(t, "delete"):
			c.typ, c.object = Deleted, was
			delete(objects, key)
		case exists:
			c.typ = Updated
			fallthrough
		default:
			objects[key] = c.object
		}
		m.changes = append(m.changes, c)
		b.Changes = append(b.Changes, Version{Type: c.typ, Key: key, UID: "uid", ResourceVersion: version, Writers: []byte("w"), Object: []byte(c.object)})
		if !relist {
			m.states = append(m.states, modelState{m.now, version, maps.Clone(objects), false})
		}
	}
	_ = base
	if relist {
		m.version++
		m.states = append(m.states, modelState{m.now, m.version, objects, true})
	}
	b.ResourceVersion, b.Objects = m.version, len(objects)
	m.must(m.writer.Append(b))
	if relist {
		m.must(m.writer.Seen(m.now, m.version))
	}
}

func (m *model) check(t *rapid.T) {
	r := m.store.Find(testPods)
	if len(m.states) == 0 {
		if _, err := r.At(m.now); !errors.As(err, new(*BeginError)) {
			t.Fatalf("an empty history is read: %v", err)
		}
		return
	}
	// A few moments; all of them would be quadratic.
	for range 2 {
		i := rapid.IntRange(0, len(m.states)-1).Draw(t, "state")
		want := m.states[i]
		s, err := r.AtVersion(want.version)
		m.must(err)
		if i+1 < len(m.states) && m.states[i+1].version > want.version || i+1 == len(m.states) {
			m.same(t, fmt.Sprint("version ", want.version), s, want.objects)
		}
		// Every change after it.
		var next []modelChange
		for _, c := range m.changes {
			if c.version > want.version {
				next = append(next, c)
			}
		}
		if i+1 == len(m.states) || m.states[i+1].version > want.version {
			m.follow(t, r, s, next)
		}
		m.must(s.Close())

		for j := i; j < len(m.states) && m.states[j].time.Equal(want.time); j++ {
			i = j // the batch is one moment
		}
		s, err = r.At(m.states[i].time)
		m.must(err)
		m.same(t, fmt.Sprint("time ", m.states[i].time), s, m.states[i].objects)
		m.must(s.Close())
	}
	if _, err := r.At(m.states[0].time.Add(-1)); !errors.As(err, new(*BeginError)) {
		t.Fatalf("the time before the history is read: %v", err)
	}
	if _, err := r.AtVersion(m.version + 1); !errors.As(err, new(*FutureError)) {
		t.Fatalf("the future is read: %v", err)
	}
	m.timeline(t, r)
}

func (m *model) same(t *rapid.T, moment string, s *State, want map[string]string) {
	t.Helper()
	var keys []string
	for v, err := range s.All("", "") {
		m.must(err)
		keys = append(keys, v.Key)
		if string(v.Object) != want[v.Key] || v.UID != "uid" || string(v.Writers) != "w" {
			t.Fatalf("at %s, %q is %s, not %s", moment, v.Key, v.Object, want[v.Key])
		}
	}
	if sorted := slices.Sorted(maps.Keys(want)); !slices.Equal(keys, sorted) {
		t.Fatalf("at %s there are %q, not %q", moment, keys, sorted)
	}
	for _, key := range modelKeys {
		v, ok, err := s.Get(key)
		m.must(err)
		if _, exists := want[key]; ok != exists || ok && string(v.Object) != want[key] {
			t.Fatalf("at %s, %q is read as %s (%v), not %s", moment, key, v.Object, ok, want[key])
		}
	}
	after := rapid.SampledFrom(modelKeys).Draw(t, "after")
	namespace := rapid.SampledFrom([]string{"", "a", "b", "nowhere"}).Draw(t, "namespace")
	var some, wanted []string
	for v, err := range s.All(namespace, after) {
		m.must(err)
		some = append(some, v.Key)
	}
	for key := range want {
		if key > after && (namespace == "" || strings.HasPrefix(key, namespace+"/")) {
			wanted = append(wanted, key)
		}
	}
	slices.Sort(wanted)
	if !slices.Equal(some, wanted) {
		t.Fatalf("at %s, namespace %q has %q after %q, not %q", moment, namespace, some, after, wanted)
	}
}

func (m *model) follow(t *rapid.T, r *Series, s *State, want []modelChange) {
	i := 0
	for c, err := range s.ChangesAfter(s.Cursor(), func(string) bool { return true }).Read(context.Background(), time.Time{}) {
		m.must(err)
		if i == len(want) {
			t.Fatalf("after version %d there is one change too many: %s %s", s.ResourceVersion, c.Type, c.Key)
		}
		w := want[i]
		before := ""
		if c.Before != nil {
			before = string(c.Before.Object)
		}
		if c.Type != w.typ || c.Key != w.key || string(c.Object) != w.object || before != w.before || !c.Time.Equal(w.time) || c.ResourceVersion != w.version || c.Relist != w.afterRelist {
			t.Fatalf("change %d after version %d is %s %q %s (before %s), not %+v", i, s.ResourceVersion, c.Type, c.Key, c.Object, before, w)
		}
		i++
	}
	if i != len(want) {
		t.Fatalf("after version %d there are %d changes, not %d", s.ResourceVersion, i, len(want))
	}
}

func (m *model) timeline(t *rapid.T, r *Series) {
	key := rapid.SampledFrom(modelKeys).Draw(t, "key")
	since := rapid.SampledFrom(m.states).Draw(t, "since").time
	until := rapid.SampledFrom(m.states).Draw(t, "until").time
	s, err := r.At(since)
	if begin := (*BeginError)(nil); errors.As(err, &begin) {
		return
	}
	m.must(err)
	defer s.Close()
	log := s.ChangesOf(s.Cursor(), key)
	var found []Change
	for c, err := range log.Read(context.Background(), until) {
		m.must(err)
		found = append(found, c)
		if rapid.IntRange(0, 3).Draw(t, "go on from here") == 0 {
			log = s.ChangesOf(log.Cursor(), key)
			break
		}
	}
	for c, err := range log.Read(context.Background(), until) {
		m.must(err)
		found = append(found, c)
	}
	var want []modelChange
	for _, c := range m.changes {
		if c.key == key && c.time.After(since) && !c.time.After(until) {
			want = append(want, c)
		}
	}
	if len(found) != len(want) {
		t.Fatalf("%q has %d changes in the timeline, not %d", key, len(found), len(want))
	}
	for i, c := range found {
		if before := want[i].before; c.Type != want[i].typ || c.Relist != want[i].afterRelist || !bytes.Equal(c.Object, []byte(want[i].object)) || (c.Before == nil) != (before == "") || before != "" && string(c.Before.Object) != before {
			t.Fatalf("change %d of %q is %s %s (before %+v), not %+v", i, key, c.Type, c.Object, c.Before, want[i])
		}
	}
}
