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

// The steps of a history: what happens on the server.

func (m *machine) write(t *rapid.T) {
	for range rapid.IntRange(1, 6).Draw(t, "writes") {
		k := rapid.SampledFrom([]string{"a/", "b/"}).Draw(t, "namespace") + rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")
		look := rapid.SampledFrom(colours).Draw(t, "look")
		if m.server.has(k) {
			switch rapid.SampledFrom([]string{"update", "update", "delete", "recreate"}).Draw(t, "how") {
			case "delete":
				look = ""
			case "recreate":
				m.server.write(k, "")
			}
		}
		m.server.write(k, look)
	}
}

// elsewhere moves the server's version without a change of a pod.
func (m *machine) elsewhere(t *rapid.T) {
	m.server.elsewhere(rapid.Bool().Draw(t, "bookmark"))
}

func (m *machine) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 15 * time.Second, 70 * time.Second, 11 * time.Minute}).Draw(t, "for"))
}

func (m *machine) compact(*rapid.T) { m.server.compact() }

func (m *machine) restore(t *rapid.T) {
	if m.server.lives() > 8 {
		t.Skip("it has been restored often enough")
	}
	m.server.restore(rapid.IntRange(0, 5).Draw(t, "writes back"))
}

func (m *machine) drop(t *rapid.T) {
	m.server.drop(rapid.SampledFrom(lastWords).Draw(t, "with"))
}

// fault makes some of the next requests go wrong.
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
		f.status = rapid.SampledFrom(lastWords).Draw(t, "with")
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

func (m *machine) mend(*rapid.T) { m.server.mend() }

// trouble is much at once: the watch is lost, and when another is asked for the
// server has changed, may have forgotten, and does not behave.
func (m *machine) trouble(t *rapid.T) {
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

// What is done to the informer.

// handler adds a handler, which may be late.
func (m *machine) handler(t *rapid.T) {
	m.serial++
	w := &witness{ours: m.ours, server: m.server, name: fmt.Sprint("handler ", m.serial), known: map[string]*corev1.Pod{}, resyncs: m.resync > 0}
	logger := klog.Logger{}
	opts := cache.HandlerOptions{Logger: &logger}
	if rapid.Bool().Draw(t, "period of its own") {
		period := rapid.SampledFrom([]time.Duration{0, 2 * time.Minute, 10 * time.Minute}).Draw(t, "period")
		opts.ResyncPeriod = &period
		w.resyncs = m.resync > 0 && period > 0
	}
	if rapid.IntRange(0, 3).Draw(t, "stuck") == 0 {
		w.block()
	}
	synctest.Wait()
	if m.control.HasSynced() {
		w.begin = m.holds()
	}
	reg, err := m.inf.AddEventHandlerWithOptions(w, opts)
	check(t, err)
	w.mu.Lock()
	w.registration, w.synced = reg, reg.HasSynced
	w.mu.Unlock()
	m.handled = append(m.handled, w)
}

// leave removes a handler, and may wait until it has returned.
func (m *machine) leave(t *rapid.T) {
	w := m.pick(t)
	if rapid.Bool().Draw(t, "wait") {
		w.unblock()
		check(t, cache.ShutDownEventHandler(m.inf, w.registration))
		if w.busy() {
			t.Fatalf("%s has been shut down and has not returned", w.name)
		}
	} else {
		check(t, m.inf.RemoveEventHandler(w.registration))
	}
	w.leave()
	w.unblock()
	m.write(t)
	synctest.Wait()
	if wrong := w.verdict(); wrong != "" {
		t.Fatal(wrong)
	}
	m.handled = slices.DeleteFunc(m.handled, func(have *witness) bool { return have == w })
}

// index adds an index to a store that may hold something.
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

func (m *machine) pick(t *rapid.T) *witness {
	if len(m.handled) == 0 {
		t.Skip("nobody follows")
	}
	return m.handled[rapid.IntRange(0, len(m.handled)-1).Draw(t, "who")]
}

func (m *machine) block(t *rapid.T) { m.pick(t).block() }

func (m *machine) unblock(*rapid.T) {
	for _, w := range m.handled {
		w.unblock()
	}
}

// settle mends everything and waits until all is as it ought to be.
func (m *machine) settle(t *rapid.T) {
	m.mend(t)
	m.unblock(t)
	if !m.running() {
		m.start(t)
	}
	// A stream that brings nothing may last ten minutes yet.
	time.Sleep(12 * time.Minute)
	synctest.Wait()
	want := m.server.newest()
	if have := m.holds(); !maps.Equal(have, want) || !m.control.HasSynced() {
		t.Fatalf("the store holds %v, the server %v; synced: %t", have, want, m.control.HasSynced())
	}
	if m.ours && m.status().Phase != informer.Watching {
		t.Fatalf("all is well and the status is %+v", m.status())
	}
	before := map[*witness]int{}
	for _, w := range m.handled {
		if got := w.knows(); !maps.Equal(got, want) || !w.synced() {
			t.Fatalf("%s knows %v, synced %t; the server has %v", w.name, got, w.synced(), want)
		}
		before[w] = w.resynced()
	}
	time.Sleep(25 * time.Minute) // twice the longest resync period
	synctest.Wait()
	for _, w := range m.handled {
		if told := w.resynced() > before[w]; told != (w.resyncs && len(want) > 0) {
			t.Fatalf("%s has been told again of what there is: %t", w.name, told)
		}
	}
}

// end stops the informer, and sees that nothing happens any more.
func (m *machine) end(t *rapid.T) {
	for range rapid.IntRange(0, 3).Draw(t, "last steps") {
		m.trouble(t)
	}
	for _, w := range m.handled {
		w.unblock()
	}
	m.halt()
	have := m.holds()
	for _, w := range m.handled {
		w.leave()
	}
	m.write(t)
	time.Sleep(time.Hour)
	synctest.Wait()
	if got := m.holds(); !maps.Equal(got, have) {
		t.Fatalf("it has stopped and the store has changed from %v to %v", have, got)
	}
	for _, w := range m.handled {
		if wrong := w.verdict(); wrong != "" {
			t.Fatal(wrong)
		}
	}
	if m.inf == nil {
		return
	}
	if _, err := m.inf.AddEventHandler(&witness{}); err == nil || !m.inf.IsStopped() {
		t.Fatal("it has stopped and takes handlers")
	}
}
