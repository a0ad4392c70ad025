package clientgo_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/tidings-io/tidings/informer/clientgo"
)

func TestMain(m *testing.M) {
	// client-go's last error handler sleeps until some time after the previous
	// error, which in another synctest bubble may be years away.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}

// kind is an implementation of client-go's constructors.
type kind struct {
	name    string
	shared  func(cache.ListerWatcher, runtime.Object, cache.SharedIndexInformerOptions) cache.SharedIndexInformer
	single  func(cache.InformerOptions) (cache.Store, cache.Controller)
	indexer func(cache.KeyFunc, cache.Indexers, ...cache.StoreOption) cache.Indexer
}

var kinds = []kind{
	{"client-go", cache.NewSharedIndexInformerWithOptions, cache.NewInformerWithOptions, cache.NewIndexer},
	{"tidings", clientgo.NewSharedIndexInformerWithOptions, clientgo.NewInformerWithOptions, clientgo.NewIndexer},
}

// rig is an informer of pods with its source. It lives in a synctest bubble:
// time passes only while everything waits, and no goroutine may be left when
// the test ends.
type rig struct {
	*testing.T
	kind
	source *fcache.FakeControllerSource
	inf    cache.SharedIndexInformer
	stop   context.CancelFunc
	done   chan struct{}
}

// onBoth runs a test on client-go's informer and on ours.
func onBoth(t *testing.T, options cache.SharedIndexInformerOptions, test func(*rig)) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &rig{T: t, kind: k, source: fcache.NewFakeControllerSource()}
				opts := options
				opts.Indexers = cache.Indexers{}
				for name, values := range options.Indexers {
					opts.Indexers[name] = values
				}
				r.inf = k.shared(r.source, &corev1.Pod{}, opts)
				test(r)
				r.halt()
				r.source.Shutdown()
			})
		})
	}
}

// inBackground starts an informer or a controller. stop ends it and waits until it
// has ended.
func inBackground(t *testing.T, run func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// run starts the informer and waits until it is idle.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.Context())
	r.stop, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.inf.RunWithContext(ctx)
	}()
	synctest.Wait()
}

// halt stops the informer and waits for it to end.
func (r *rig) halt() {
	if r.stop != nil {
		r.stop()
		<-r.done
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// handle registers a handler that records its events.
func (r *rig) handle(options cache.HandlerOptions) *recordingHandler {
	r.Helper()
	l := &recordingHandler{t: r.T}
	var err error
	l.reg, err = r.inf.AddEventHandlerWithOptions(l, options)
	r.must(err)
	return l
}

// pod returns a pod with a color. The source sets its version.
func pod(name, color string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-" + "1", Labels: map[string]string{"color": color}}}
}

// reborn returns another pod with the same name.
func reborn(p *corev1.Pod) *corev1.Pod {
	p.UID += "-again"
	return p
}

// recordingHandler is a handler that records its events.
type recordingHandler struct {
	t      *testing.T
	reg    cache.ResourceEventHandlerRegistration
	before func(line string) // called at each event, before it is recorded

	mu    sync.Mutex
	lines []string
	state map[string]string // the state that the events lead to
}

func (l *recordingHandler) record(line string, apply func()) {
	if l.before != nil {
		l.before(line)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if l.state == nil {
		l.state = map[string]string{}
	}
	apply()
}

func nameAndColor(obj any) string {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Sprintf("%T", obj)
	}
	return p.Name + "=" + p.Labels["color"]
}

func (l *recordingHandler) OnAdd(obj any, initial bool) {
	line := "add " + nameAndColor(obj)
	if initial {
		line += " initial"
	}
	l.record(line, func() {
		name := obj.(*corev1.Pod).Name
		if _, ok := l.state[name]; ok {
			l.t.Errorf("%s was added twice", name)
		}
		l.state[name] = nameAndColor(obj)
	})
}

func (l *recordingHandler) OnUpdate(old, new any) {
	l.record("update "+nameAndColor(old)+" "+nameAndColor(new), func() {
		name := new.(*corev1.Pod).Name
		if have := l.state[name]; have != nameAndColor(old) {
			l.t.Errorf("%s was updated from %q, but was %q", name, nameAndColor(old), have)
		}
		l.state[name] = nameAndColor(new)
	})
}

func (l *recordingHandler) OnDelete(obj any) {
	line := "delete " + nameAndColor(obj)
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		line = "tombstone " + gone.Key + " " + nameAndColor(gone.Obj)
		obj = gone.Obj
	}
	l.record(line, func() {
		name := obj.(*corev1.Pod).Name
		if _, ok := l.state[name]; !ok {
			l.t.Errorf("%s was deleted and had not been there", name)
		}
		delete(l.state, name)
	})
}

// expect compares the events recorded since the last call.
func (l *recordingHandler) expect(want ...string) {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	got := l.lines
	l.lines = nil
	l.mu.Unlock()
	if !equal(got, want) {
		l.t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// equal compares lines. Consecutive wanted lines that begin with "~" may come
// in any order, because client-go's store has none.
func equal(got, want []string) bool {
	if len(got) != len(want) {
		return false
	}
	for i := 0; i < len(want); {
		n := i
		for n < len(want) && strings.HasPrefix(want[n], "~") {
			n++
		}
		if n == i {
			if got[i] != want[i] {
				return false
			}
			i++
			continue
		}
		is, ought := slices.Sorted(slices.Values(got[i:n])), []string{}
		for _, line := range want[i:n] {
			ought = append(ought, strings.TrimPrefix(line, "~"))
		}
		slices.Sort(ought)
		if !slices.Equal(is, ought) {
			return false
		}
		i = n
	}
	return true
}
