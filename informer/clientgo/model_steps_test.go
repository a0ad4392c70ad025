package clientgo_test

import (
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/informer"
)

// Steps of a history: changes of the server.

func (m *machine) write(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "writes") {
		k := rapid.SampledFrom([]string{"a/", "b/"}).Draw(t, "namespace") + rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
		color := rapid.SampledFrom(colors).Draw(t, "color")
		if m.server.has(k) {
			switch rapid.SampledFrom([]string{"update", "update", "delete", "recreate"}).Draw(t, "how") {
			case "delete":
				color = ""
			case "recreate":
				m.server.write(k, "")
			}
		}
		m.server.write(k, color)
	}
}

// advance increases the server's version without a change of a pod.
func (m *machine) advance(t *rapid.T) {
	m.server.advance(rapid.Bool().Draw(t, "bookmark"))
}

func (m *machine) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 15 * time.Second, 70 * time.Second, 11 * time.Minute}).Draw(t, "for"))
}

func (m *machine) compact(*rapid.T) { m.server.compact() }

func (m *machine) restore(t *rapid.T) {
	if m.server.epochs() > 8 {
		t.Skip("it has been restored often enough")
	}
	m.server.restore(rapid.IntRange(0, 5).Draw(t, "writes back"))
}

func (m *machine) drop(t *rapid.T) {
	m.server.drop(rapid.SampledFrom(closingStatuses).Draw(t, "with"))
}

// fault makes some of the next requests fail.
func (m *machine) fault(t *rapid.T) {
	f := &fault{after: -1, times: rapid.SampledFrom([]int{1, 2, 3, -1}).Draw(t, "times")}
	f.verb = rapid.SampledFrom([]string{"list", "watch", "watchlist"}).Draw(t, "verb")
	kinds := []string{"refused", "slow", "ends", "twice", "silent", "no bookmarks", "no end", "late"}
	if f.verb == "list" {
		kinds = []string{"refused", "slow", "stale"}
	}
	switch rapid.SampledFrom(kinds).Draw(t, "kind") {
	case "refused":
		f.err = rapid.SampledFrom(refusals).Draw(t, "refusal")
	case "slow":
		f.delay = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "delay")
	case "stale":
		f.stale = rapid.IntRange(1, 5).Draw(t, "writes")
	case "ends":
		f.after = rapid.IntRange(0, 4).Draw(t, "after")
		f.status = rapid.SampledFrom(closingStatuses).Draw(t, "with")
	case "twice":
		f.twice = true
	case "silent":
		f.silent = true
	case "no bookmarks":
		f.noBookmarks = true
	case "no end":
		f.noEnd = true
	case "late":
		f.late = rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, time.Minute}).Draw(t, "late by")
	}
	m.server.fault(f)
}

func (m *machine) clearFaults(*rapid.T) { m.server.clearFaults() }

// disrupt combines failures: the watch breaks, and before the next one the
// server changes, may be compacted, and gets faults.
func (m *machine) disrupt(t *rapid.T) {
	for range rapid.IntRange(0, 2).Draw(t, "faults") {
		m.fault(t)
	}
	m.drop(t)
	m.write(t)
	if rapid.Bool().Draw(t, "compact") {
		m.compact(t)
	}
	m.sleep(t)
	m.write(t)
}

// Steps of a history: calls to the informer.

// handler adds a handler, possibly after the initial list.
func (m *machine) handler(t *rapid.T) {
	m.serial++
	h := &modelHandler{ours: m.ours, server: m.server, name: fmt.Sprint("handler ", m.serial), known: map[string]*corev1.Pod{}, wantResyncs: m.resync > 0}
	logger := klog.Logger{}
	opts := cache.HandlerOptions{Logger: &logger}
	if rapid.Bool().Draw(t, "period of its own") {
		period := rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, 10 * time.Minute}).Draw(t, "period")
		opts.ResyncPeriod = &period
		h.wantResyncs = m.resync > 0 && period > 0
	}
	if rapid.IntRange(0, 3).Draw(t, "stuck") == 0 {
		h.block()
	}
	synctest.Wait()
	if m.control.HasSynced() {
		h.initialStore = m.storeState()
	}
	reg, err := m.inf.AddEventHandlerWithOptions(h, opts)
	check(t, err)
	h.mu.Lock()
	h.registration, h.synced = reg, reg.HasSynced
	h.mu.Unlock()
	m.handled = append(m.handled, h)
}

// leave removes a handler and may wait for it to return.
func (m *machine) leave(t *rapid.T) {
	h := m.pick(t)
	if rapid.Bool().Draw(t, "wait") {
		h.unblock()
		check(t, cache.ShutDownEventHandler(m.inf, h.registration))
		if h.busy() {
			t.Fatalf("%s has been shut down and has not returned", h.name)
		}
	} else {
		check(t, m.inf.RemoveEventHandler(h.registration))
	}
	h.markRemoved()
	h.unblock()
	m.write(t)
	synctest.Wait()
	if wrong := h.failure(); wrong != "" {
		t.Fatal(wrong)
	}
	m.handled = slices.DeleteFunc(m.handled, func(have *modelHandler) bool { return have == h })
}

// index adds an index to a store that may have objects.
func (m *machine) index(t *rapid.T) {
	if len(m.indexes) == len(indexers) {
		t.Skip("it has them all")
	}
	for name, values := range indexers {
		if !slices.Contains(m.indexes, name) {
			m.indexes = append(m.indexes, name)
			check(t, m.inf.AddIndexers(cache.Indexers{name: values}))
		}
	}
}

func (m *machine) pick(t *rapid.T) *modelHandler {
	if len(m.handled) == 0 {
		t.Skip("there are no handlers")
	}
	return m.handled[rapid.IntRange(0, len(m.handled)-1).Draw(t, "handler")]
}

func (m *machine) block(t *rapid.T) { m.pick(t).block() }

func (m *machine) unblock(*rapid.T) {
	for _, h := range m.handled {
		h.unblock()
	}
}

// settle clears all faults and waits until everything is as it should be.
func (m *machine) settle(t *rapid.T) {
	m.clearFaults(t)
	m.unblock(t)
	if !m.running() {
		m.start(t)
	}
	// A silent stream may last ten more minutes.
	time.Sleep(12 * time.Minute)
	synctest.Wait()
	want := m.server.newest()
	if have := m.storeState(); !maps.Equal(have, want) || !m.control.HasSynced() {
		t.Fatalf("the store holds %v, the server %v; synced: %t", have, want, m.control.HasSynced())
	}
	if m.ours && m.status().Phase != informer.Watching {
		t.Fatalf("all is well and the status is %+v", m.status())
	}
	before := map[*modelHandler]int{}
	for _, h := range m.handled {
		if got := h.state(); !maps.Equal(got, want) || !h.synced() {
			t.Fatalf("%s knows %v, synced %t; the server has %v", h.name, got, h.synced(), want)
		}
		before[h] = h.resyncCount()
	}
	time.Sleep(25 * time.Minute) // twice the longest resync period
	synctest.Wait()
	for _, h := range m.handled {
		if delivered := h.resyncCount() > before[h]; delivered != (h.wantResyncs && len(want) > 0) {
			t.Fatalf("%s got a resync: %t", h.name, delivered)
		}
	}
}

// end stops the informer and checks that nothing happens afterwards.
func (m *machine) end(t *rapid.T) {
	for range rapid.IntRange(0, 3).Draw(t, "last steps") {
		m.disrupt(t)
	}
	for _, h := range m.handled {
		h.unblock()
	}
	m.halt()
	have := m.storeState()
	for _, h := range m.handled {
		h.markRemoved()
	}
	m.write(t)
	time.Sleep(time.Hour)
	synctest.Wait()
	if got := m.storeState(); !maps.Equal(got, have) {
		t.Fatalf("it has stopped and the store has changed from %v to %v", have, got)
	}
	for _, h := range m.handled {
		if wrong := h.failure(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	if m.inf == nil {
		return
	}
	if _, err := m.inf.AddEventHandler(&modelHandler{}); err == nil || !m.inf.IsStopped() {
		t.Fatal("it has stopped and takes handlers")
	}
}
