package journal_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/informer/informertest"
	"github.com/tidings-io/tidings/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// tester is a test, or one of rapid's.
type tester interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// program is a program that is started, stopped and killed, and the cluster that it reads.
type program struct {
	tester
	dir    string
	fs     *vfs.MemFS // nil: the machine's
	server *informertest.Server
	conn   *cluster.Cluster
	have   map[string]string // what the cluster has
	lists  atomic.Int64      // requests for all objects

	journal *journal.Journal
	inf     *informer.Informer[*corev1.ConfigMap]
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func newProgram(t tester, dir string) *program {
	p := &program{tester: t, dir: dir}
	p.another()
	return p
}

// another puts another cluster in the place of the present one.
func (p *program) another() {
	if p.server != nil {
		p.conn.Close()
		p.server.Close()
	}
	var err error
	p.server, err = informertest.NewServer()
	p.must(err)
	config := p.server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			q := req.URL.Query()
			if strings.HasSuffix(req.URL.Path, "/configmaps") && (!q.Has("watch") || q.Has("sendInitialEvents") && !q.Has("fieldSelector")) {
				p.lists.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	p.conn, err = cluster.New("test", config)
	p.must(err)
	p.have = map[string]string{}
}

func (p *program) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *program) close() {
	p.conn.Close()
	p.server.Close()
}

func (p *program) set(name, value string) {
	p.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"v": value}}
	_, exists := p.have[name]
	var err error
	if exists {
		_, err = p.server.Update(cm)
	} else {
		_, err = p.server.Create(cm)
	}
	p.must(err)
	p.have[name] = value
}

func (p *program) delete(name string) {
	p.Helper()
	if _, exists := p.have[name]; exists {
		p.must(p.server.Delete(configMaps, "default", name))
		delete(p.have, name)
	}
}

// start starts the program, waits until it has what the cluster has, and returns the
// number of lists that this took.
func (p *program) start() (lists int) {
	p.Helper()
	p.lists.Store(0)
	var err error
	if p.fs != nil {
		p.journal, err = journal.OpenOn("journal", p.fs)
	} else {
		p.journal, err = journal.Open(p.dir)
	}
	p.must(err)
	p.inf, err = journal.NewInformer[*corev1.ConfigMap](p.journal, "config maps", p.conn)
	p.must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p.must(p.inf.Start(ctx))
	p.follow()
	return int(p.lists.Load())
}

// follow waits until informer and journal have what the cluster has.
func (p *program) follow() {
	p.Helper()
	deadline := time.Now().Add(20 * time.Second)
	journaled := func() bool {
		kept := p.inf.Status().Handlers[0]
		return kept.Synced && kept.Backlog == 0
	}
	for !maps.Equal(p.holds(), p.have) || !journaled() {
		if time.Now().After(deadline) {
			p.Fatalf("the informer has %v, the cluster %v", p.holds(), p.have)
		}
		time.Sleep(time.Millisecond)
	}
}

func (p *program) holds() map[string]string {
	out := map[string]string{}
	for _, cm := range p.inf.List(informer.Query{}) {
		out[cm.Name] = cm.Data["v"]
	}
	return out
}

func (p *program) stop() {
	p.Helper()
	p.must(p.inf.Stop(context.Background()))
	p.must(p.journal.Close())
}

// kill stops the program as if the machine had failed: a part of what was not synced is
// lost.
func (p *program) kill(percent int) {
	p.Helper()
	left := p.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, uint64(percent)))})
	p.stop()
	p.fs = left
}

// Whatever a program does, it has what the cluster has after the next start.
func TestStartsAndEnds(t *testing.T) {
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue { // each starts many times
		if err := flag.Set("rapid.checks", "20"); err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		p := newProgram(rt, "")
		p.fs = vfs.NewCrashableMem()
		defer p.close()
		p.start()
		defer func() { p.stop() }()
		names := rapid.SampledFrom([]string{"a", "b", "c", "d"})
		change := func(rt *rapid.T) {
			for i := range rapid.IntRange(1, 5).Draw(rt, "changes") {
				if name := names.Draw(rt, "name"); rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
					p.delete(name)
				} else {
					p.set(name, fmt.Sprint(i, rapid.Byte().Draw(rt, "value")))
				}
			}
		}
		again := func(rt *rapid.T, known bool) {
			if rapid.Bool().Draw(rt, "changes meanwhile") {
				change(rt)
			}
			if rapid.IntRange(0, 4).Draw(rt, "expired") == 0 {
				p.set("a", "the versions before are forgotten")
				p.server.Expire(configMaps)
				known = false
			}
			if lists := p.start(); known && lists > 0 {
				rt.Fatalf("%d lists, although the journal has been closed", lists)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"change": change,
			"follow": func(*rapid.T) { p.follow() },
			"restart": func(rt *rapid.T) {
				p.follow()
				p.stop()
				again(rt, true)
			},
			"kill": func(rt *rapid.T) {
				p.kill(rapid.IntRange(0, 100).Draw(rt, "percent"))
				again(rt, false)
			},
			"another cluster": func(rt *rapid.T) {
				p.stop()
				p.another()
				again(rt, false)
			},
		})
	})
}

// A program that may not read the namespace kube-system is told clusters apart by their
// address.
func TestWithoutTheRightToReadNamespaces(t *testing.T) {
	p := newProgram(t, t.TempDir())
	defer p.close()
	p.set("a", "1")
	p.server.Fail(1000, "get", namespaces, apierrors.NewForbidden(namespaces.GroupResource(), "kube-system", errors.New("no right")))
	p.start()
	p.stop()
	p.set("a", "2")
	if lists := p.start(); lists != 0 {
		t.Errorf("%d lists", lists)
	}
	p.stop()
}

// A cluster that cannot be identified is listed, and what the journal has is not mixed with
// what the cluster has.
func TestAClusterThatCannotBeIdentified(t *testing.T) {
	p := newProgram(t, t.TempDir())
	defer p.close()
	p.set("gone", "1")
	p.start()
	p.stop()
	p.delete("gone")
	p.set("a", "1")
	p.server.Fail(1, "get", namespaces, apierrors.NewInternalError(errors.New("a failure")))
	if lists := p.start(); lists == 0 {
		t.Error("it is not listed")
	}
	p.stop()
	for _, want := range []bool{true, false} { // the first start learns which cluster it is
		if lists := p.start(); lists > 0 != want {
			t.Errorf("%d lists", lists)
		}
		p.stop()
	}
}

func TestMisuse(t *testing.T) {
	p := newProgram(t, t.TempDir())
	defer p.close()
	p.start()
	if _, err := journal.Open(p.dir); err == nil || !strings.Contains(err.Error(), "open already") {
		t.Errorf("a folder that is open is opened: %v", err)
	}
	for _, name := range []string{"config maps", "", "a\x00b"} {
		if _, err := journal.NewInformer[*corev1.ConfigMap](p.journal, name, p.conn); err == nil {
			t.Errorf("an informer %q is made", name)
		}
	}
	p.stop()
	if _, err := journal.NewInformer[*corev1.ConfigMap](p.journal, "late", p.conn); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("the error after Close is %v", err)
	}
	p.must(p.journal.Close())

	file := filepath.Join(t.TempDir(), "file")
	p.must(os.WriteFile(file, nil, 0o600))
	if _, err := journal.Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file is opened: %v", err)
	}
	// A damaged folder says what to do.
	tables, err := filepath.Glob(filepath.Join(p.dir, "MANIFEST-*"))
	if p.must(err); len(tables) == 0 {
		t.Fatal("no manifest")
	}
	slices.Sort(tables)
	p.must(os.WriteFile(tables[len(tables)-1], []byte("damaged"), 0o600))
	if _, err := journal.Open(p.dir); err == nil || !strings.Contains(err.Error(), "delete the folder") {
		t.Errorf("a damaged folder is opened: %v", err)
	}
}
