package informer_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// The steps of a history: what happens on the server.

func (m *machine[T]) write(t *rapid.T) {
	for range rapid.IntRange(1, 8).Draw(t, "writes") {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: rapid.SampledFrom([]string{"a", "a-b", "b"}).Draw(t, "namespace"),
			Name:      rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name"),
		}}
		_, missing := m.server.Get(configMaps, cm.Namespace, cm.Name)
		m.serial++
		cm.Labels = map[string]string{"n": fmt.Sprint(m.serial), "chosen": rapid.SampledFrom([]string{"yes", "yes", "no"}).Draw(t, "chosen")}
		how := "create"
		if missing == nil {
			how = rapid.SampledFrom([]string{"update", "update", "delete", "recreate"}).Draw(t, "how")
		}
		var err error
		switch how {
		case "update":
			_, err = m.server.Update(cm)
		case "delete":
			err = m.server.Delete(configMaps, cm.Namespace, cm.Name)
		case "recreate":
			check(t, m.server.Delete(configMaps, cm.Namespace, cm.Name))
			m.record(t)
			fallthrough
		default:
			_, err = m.server.Create(cm)
		}
		check(t, err)
		m.record(t)
	}
}

// elsewhere moves the server's version without an event of the resource.
func (m *machine[T]) elsewhere(t *rapid.T) {
	m.serial++
	_, err := m.server.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns-", m.serial)}})
	check(t, err)
}

func (m *machine[T]) sleep(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{time.Second, 15 * time.Second, 70 * time.Second, 11 * time.Minute}).Draw(t, "for"))
}

func (m *machine[T]) compact(*rapid.T) { m.server.Compact() }

var failures = []*apierrors.StatusError{
	apierrors.NewResourceExpired("too old"), apierrors.NewTooManyRequests("busy", 2), apierrors.NewInternalError(errors.New("oops")),
	apierrors.NewServiceUnavailable("starting"), apierrors.NewTimeoutError("too slow", 1),
}

func (m *machine[T]) breakConnections(t *rapid.T) {
	switch rapid.SampledFrom([]string{"down", "abort", "close", "fail"}).Draw(t, "how") {
	case "down":
		m.server.SetDown(true)
	case "abort":
		m.server.AbortWatches(configMaps)
	case "close":
		m.server.CloseWatches(configMaps)
	case "fail":
		m.server.FailWatches(configMaps, rapid.SampledFrom(failures).Draw(t, "with"))
	}
}

// fault makes some of the next requests go wrong.
func (m *machine[T]) fault(t *rapid.T) {
	fault := &fakeapi.Fault{}
	switch rapid.IntRange(0, 9).Draw(t, "fault") {
	case 0:
		fault.Drop = true
	case 1:
		fault = fakeapi.StatusFault(rapid.SampledFrom(failures).Draw(t, "status"))
	case 2:
		fault.CutAfter = rapid.IntRange(1, 1500).Draw(t, "bytes")
	case 3:
		fault.CutAfterEvents = rapid.SampledFrom([]int{-1, 1, 2, 3}).Draw(t, "events")
	case 4:
		fault.NoBookmarks = true
	case 5:
		fault.NoInitialEventsEnd = true
	case 6:
		fault.NoWatchList = true
	case 7:
		fault.Delay = rapid.SampledFrom([]time.Duration{time.Second, time.Minute}).Draw(t, "delay")
	case 8:
		fault.Twice = true
	case 9: // an answer of something that is no API server
		fault = fakeapi.StatusFault(&apierrors.StatusError{ErrStatus: metav1.Status{Code: 502, Status: metav1.StatusSuccess}})
	}
	injector := fakeapi.On(rapid.SampledFrom([]string{"list", "watch"}).Draw(t, "verb"), configMaps, fault)
	if n := rapid.IntRange(0, 3).Draw(t, "times"); n > 0 { // or until it is mended
		injector = fakeapi.Times(n, injector)
	}
	m.mend = append(m.mend, m.server.Inject(injector))
}

func (m *machine[T]) repair(*rapid.T) {
	for _, remove := range m.mend {
		remove()
	}
	m.mend = nil
	m.server.SetDown(false)
}

// trouble is much at once: the server is lost, and when it comes back it has
// changed, may have forgotten, and does not behave.
func (m *machine[T]) trouble(t *rapid.T) {
	m.breakConnections(t)
	for range rapid.IntRange(0, 2).Draw(t, "faults") {
		m.fault(t)
	}
	m.write(t)
	if rapid.Bool().Draw(t, "compact") {
		m.compact(t)
	}
	m.sleep(t)
	if rapid.Bool().Draw(t, "up") {
		m.server.SetDown(false)
		m.sleep(t)
	}
	m.write(t)
}

// What is done to the informer.

func (m *machine[T]) start(t *rapid.T) {
	if m.running {
		if err := m.inf.Start(m.ctx); !errors.Is(err, informer.ErrStarted) {
			t.Fatalf("starting a running informer gives %v", err)
		}
		return
	}
	if rapid.Bool().Draw(t, "in the background") {
		m.run()
		return
	}
	ctx, cancel := context.WithTimeout(m.ctx, 40*time.Second)
	defer cancel()
	switch err := m.inf.Start(ctx); {
	case err == nil:
		m.running = true
	case !errors.Is(err, context.DeadlineExceeded):
		t.Fatalf("start ended with %v", err)
	}
}

// stop stops the informer, which only a handler that does not return can delay.
func (m *machine[T]) stop(t *rapid.T) {
	ctx, cancel := context.WithTimeout(m.ctx, time.Second)
	defer cancel()
	err := m.inf.Stop(ctx)
	blocked := slices.ContainsFunc(m.follow, func(w *witness[T]) bool { return w.registration != nil && !w.awake(true) })
	if err != nil && !(blocked && errors.Is(err, context.DeadlineExceeded)) {
		t.Fatalf("stop ended with %v", err)
	}
	if err != nil {
		m.unblock(t)
		check(t, m.inf.Stop(m.ctx))
	}
	m.hasStopped(t)
}

func (m *machine[T]) hasStopped(t *rapid.T) {
	m.running = false
	if m.ended != nil {
		check(t, <-m.ended)
		m.ended = nil
	}
	if s := m.inf.Status(); s.Phase != informer.Stopped {
		t.Fatalf("stopped, it is %s", s.Phase)
	}
}

func (m *machine[T]) empty(t *rapid.T) {
	m.unblock(t)
	check(t, m.inf.Empty(m.ctx))
	m.hasStopped(t)
	m.version, m.emptied = 0, number(m.server.ResourceVersion())
	if s := m.inf.Status(); s.Objects != 0 || s.Synced || s.ResourceVersion != "" || len(m.holds()) > 0 {
		t.Fatalf("emptied, it is %+v and holds %v", s, m.holds())
	}
	for _, w := range m.follow {
		if got := w.knows(); w.registration != nil && len(got) > 0 {
			t.Fatalf("%s has not been told that %v went", w, got)
		}
	}
}

// Those who follow it.

func (m *machine[T]) newWitness(t *rapid.T, what string) (*witness[T], []informer.SubscribeOption) {
	m.serial++
	w := &witness[T]{name: fmt.Sprintf("%s %d", what, m.serial), known: map[string]T{}, resumes: m.single()}
	var opts []informer.SubscribeOption
	if rapid.Bool().Draw(t, "bookmarks") {
		opts = append(opts, informer.Bookmarks())
	}
	if rapid.IntRange(0, 3).Draw(t, "resync") == 0 {
		opts = append(opts, informer.Resync(5*time.Minute))
	}
	if rapid.IntRange(0, 2).Draw(t, "fold") == 0 {
		opts = append(opts, informer.FoldAfter(3))
	}
	return w, opts
}

func (m *machine[T]) handler(t *rapid.T) {
	w, opts := m.newWitness(t, "handler")
	if rapid.IntRange(0, 3).Draw(t, "stuck") == 0 {
		w.block()
	}
	w.registration = m.inf.AddHandler(w, opts...)
	m.follow = append(m.follow, w)
}

func (m *machine[T]) loop(t *rapid.T) {
	w, opts := m.newWitness(t, "loop")
	var ctx context.Context
	ctx, w.end = context.WithCancel(m.ctx)
	m.goOn(w, m.inf.Events(ctx, opts...))
}

// goOn follows in a loop.
func (m *machine[T]) goOn(w *witness[T], events iter.Seq[informer.Event[T]]) {
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		for e := range events {
			w.Handle(e)
		}
	}()
	m.follow = append(m.follow, w)
}

// resume follows from a version that somebody was told he may resume from.
func (m *machine[T]) resume(t *rapid.T) {
	if !m.single() {
		t.Skip("several namespaces cannot be resumed")
	}
	from := m.pick(t)
	from.mu.Lock()
	past := slices.Clone(from.past)
	from.mu.Unlock()
	if len(past) == 0 {
		t.Skip("nothing to resume from")
	}
	at := past[rapid.IntRange(0, len(past)-1).Draw(t, "where")]
	version, known := at.version, maps.Clone(at.known)
	w, opts := m.newWitness(t, "loop that resumed from "+version+" of "+from.name)
	w.known, w.synced = known, true
	var ctx context.Context
	ctx, w.end = context.WithCancel(m.ctx)
	events, err := m.inf.EventsSince(ctx, version, opts...)
	if errors.Is(err, informer.ErrExpired) && number(version) <= m.emptied {
		t.Skip("the informer has been emptied since")
	}
	if err != nil {
		t.Fatalf("%s cannot resume: %v", from, err)
	}
	m.goOn(w, events)
}

func (m *machine[T]) leave(t *rapid.T) {
	w := m.pick(t)
	if w.registration != nil {
		ctx, cancel := context.WithTimeout(m.ctx, time.Second)
		defer cancel()
		if err := w.registration.Remove(ctx); err != nil && (w.awake(true) || !errors.Is(err, context.DeadlineExceeded)) {
			t.Fatalf("removing %s ended with %v", w, err)
		}
		w.mu.Lock()
		w.removed = true
		w.mu.Unlock()
		w.unblock()
	} else {
		w.end()
		w.unblock()
		<-w.done
	}
	if wrong := w.verdict(m.at); wrong != "" {
		t.Fatal(wrong)
	}
	m.follow = slices.DeleteFunc(m.follow, func(have *witness[T]) bool { return have == w })
}

func (m *machine[T]) block(t *rapid.T) { m.pick(t).block() }

func (m *machine[T]) unblock(*rapid.T) {
	for _, w := range m.follow {
		w.unblock()
	}
}

// view pins a state, or lets go of one.
func (m *machine[T]) view(t *rapid.T) {
	if len(m.views) > 2 || len(m.views) > 0 && rapid.Bool().Draw(t, "release") {
		m.views[0].Release()
		m.views = m.views[1:]
		return
	}
	v := m.inf.View()
	m.views = append(m.views, pinned[T]{v, v.List(informer.Query{})})
}
