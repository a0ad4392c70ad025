package informer_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
	"github.com/tidings-io/tidings/internal/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
)

// rig is an in-memory cluster and a connection to it.
type rig struct {
	*testing.T
	ctx    context.Context
	server *fakeapi.Cluster
	conn   *cluster.Cluster
	log    *logbook.Book
}

// inBubble runs a test in a synctest bubble, where time passes only while
// everything waits and nothing may outlive the test.
func inBubble(t *testing.T, opts fakeapi.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(opts)
		config, stop := fakeapi.InProcess(server)
		defer stop()
		conn, err := cluster.New("test", config)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		test(&rig{T: t, ctx: ctx, server: server, conn: conn, log: &logbook.Book{}})
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// set makes a config map hold a value, creating it if need be.
func (r *rig) set(namespace, name, value string) string {
	r.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"v": value}}
	out, err := r.server.Put(cm)
	r.must(err)
	return out.GetResourceVersion()
}

func (r *rig) delete(namespace, name string) {
	r.Helper()
	r.must(r.server.Delete(configMaps, namespace, name))
}

// configMapInformer makes an informer of config maps that logs to the rig.
func (r *rig) configMapInformer(opts ...informer.Option) *informer.Informer[*corev1.ConfigMap] {
	r.Helper()
	inf, err := informer.New[*corev1.ConfigMap](r.conn, append(opts, informer.Logger(slog.New(slog.NewTextHandler(r.log, nil))))...)
	r.must(err)
	r.stopAfter(inf)
	return inf
}

// stopAfter stops an informer at the end of the test: nothing may outlive it.
func (r *rig) stopAfter(inf interface{ Stop(context.Context) error }) {
	r.Cleanup(func() {
		if err := inf.Stop(context.Background()); err != nil {
			r.Error(err)
		}
	})
}

// diary is a handler that writes down what it is told, a line an event.
type diary[T informer.Object] struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary[T]) Handle(e informer.Event[T]) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line(e))
}

func line[T informer.Object](e informer.Event[T]) string {
	s := e.Type.String()
	if e.Type != informer.Synced && e.Type != informer.Bookmark {
		s += " " + informer.Key(e.Object)
		if cm, ok := any(e.Object).(*corev1.ConfigMap); ok {
			was := ""
			if old, ok := any(e.Old).(*corev1.ConfigMap); ok && old != nil {
				was = old.Data["v"]
			}
			s += " " + was + ">" + cm.Data["v"]
		}
	}
	if e.InInitialList {
		s += " initial"
	}
	if e.Tombstone {
		s += " tombstone"
	}
	return s
}

// read returns what has been written since the last read.
func (d *diary[T]) read() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

// expect checks what a diary has written since the last read.
func (r *rig) expect(d *diary[*corev1.ConfigMap], want ...string) {
	r.Helper()
	synctest.Wait()
	if got := d.read(); !slices.Equal(got, want) {
		r.Errorf("told\n\t%s\nnot\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// values lists what an informer holds, as key=value.
func values(l informer.Lister[*corev1.ConfigMap], q informer.Query) []string {
	var out []string
	for _, cm := range l.List(q) {
		out = append(out, fmt.Sprintf("%s=%s", informer.Key(cm), cm.Data["v"]))
	}
	return out
}

func (r *rig) holds(l informer.Lister[*corev1.ConfigMap], want ...string) {
	r.Helper()
	synctest.Wait()
	if got := values(l, informer.Query{}); !slices.Equal(got, want) {
		r.Errorf("holds %v, not %v", got, want)
	}
}

// within gives a context for what must not take longer.
func (r *rig) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(r.ctx, d)
	r.Cleanup(cancel)
	return ctx
}
