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
	// The last of client-go's error handlers sleeps until some time after the
	// error before, which in another bubble may have been years from now.
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

// rig is an informer of pods, the source it has them from, and what is needed
// to look at both. It lives in a synctest bubble: time passes only while
// everything waits, and nothing may be left when the test ends.
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

// run starts the informer and waits until there is nothing to do.
func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.Context())
	r.stop, r.done = cancel, make(chan struct{})
	go func() {
		defer close(r.done)
		r.inf.RunWithContext(ctx)
	}()
	synctest.Wait()
}

// halt stops the informer and waits for its end.
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

// handle registers a handler that keeps a log.
func (r *rig) handle(options cache.HandlerOptions) *logbook {
	r.Helper()
	l := &logbook{t: r.T}
	var err error
	l.reg, err = r.inf.AddEventHandlerWithOptions(l, options)
	r.must(err)
	return l
}

// pod makes a pod of a certain look. Versions are the source's to give.
func pod(name, look string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid-" + "1", Labels: map[string]string{"look": look}}}
}

// reborn is another pod of the same name.
func reborn(p *corev1.Pod) *corev1.Pod {
	p.UID += "-again"
	return p
}

// logbook is a handler that writes down what it is told.
type logbook struct {
	t      *testing.T
	reg    cache.ResourceEventHandlerRegistration
	before func(line string) // called at each event, before it is written down

	mu    sync.Mutex
	lines []string
	state map[string]string // what a reader of the lines would believe in
}

func (l *logbook) write(line string, apply func()) {
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

func look(obj any) string {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return fmt.Sprintf("%T", obj)
	}
	return p.Name + "=" + p.Labels["look"]
}

func (l *logbook) OnAdd(obj any, initial bool) {
	line := "add " + look(obj)
	if initial {
		line += " initial"
	}
	l.write(line, func() {
		name := obj.(*corev1.Pod).Name
		if _, ok := l.state[name]; ok {
			l.t.Errorf("%s was added twice", name)
		}
		l.state[name] = look(obj)
	})
}

func (l *logbook) OnUpdate(old, new any) {
	l.write("update "+look(old)+" "+look(new), func() {
		name := new.(*corev1.Pod).Name
		if have := l.state[name]; have != look(old) {
			l.t.Errorf("%s was updated from %q, but was %q", name, look(old), have)
		}
		l.state[name] = look(new)
	})
}

func (l *logbook) OnDelete(obj any) {
	line := "delete " + look(obj)
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		line = "tombstone " + gone.Key + " " + look(gone.Obj)
		obj = gone.Obj
	}
	l.write(line, func() {
		name := obj.(*corev1.Pod).Name
		if _, ok := l.state[name]; !ok {
			l.t.Errorf("%s was deleted and had not been there", name)
		}
		delete(l.state, name)
	})
}

// expect compares what has been written since the last time. Lines in braces may
// come in any order.
func (l *logbook) expect(want ...string) {
	l.t.Helper()
	synctest.Wait()
	l.mu.Lock()
	got := l.lines
	l.lines = nil
	l.mu.Unlock()
	if !equal(got, want) {
		l.t.Errorf("was told\n\t%s\nand should have been\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// equal compares lines; a run of wanted lines that begin with "~" may come in
// any order, because client-go's store has none.
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
