package read_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(controlplane.Tests(m)) }

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	namespaces = corev1.SchemeGroupVersion.WithResource("namespaces")
)

// rig is a mirror of one in-memory cluster.
type rig struct {
	testing.TB
	ctx    context.Context
	server *fakeapi.Cluster
	config *rest.Config
	mirror *mirror.Mirror
	reader *read.Reader
}

// inBubble runs a test in a synctest bubble: time passes only while all goroutines wait,
// and no goroutine may outlive the test.
func inBubble(t *testing.T, server fakeapi.Options, opts mirror.Options, test func(*rig)) {
	t.Helper()
	inBubbleOf(t, server, opts, read.Options{Wait: opts.Wait}, test)
}

func inBubbleOf(t *testing.T, server fakeapi.Options, opts mirror.Options, reads read.Options, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := fakeapi.New(server)
		config, stop := fakeapi.InProcess(c)
		defer stop()
		r := newRig(t, c, config, opts)
		r.reader = read.New(reads)
		defer r.close()
		test(r)
	})
}

func newRig(tb testing.TB, c *fakeapi.Cluster, config *rest.Config, opts mirror.Options) *rig {
	tb.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := mirror.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{TB: tb, ctx: tb.Context(), server: c, config: config, mirror: m, reader: read.New(read.Options{Wait: opts.Wait})}
	r.must(m.Set(r.ctx, map[string]*rest.Config{"test": config}))
	return r
}

func (r *rig) close() {
	r.Helper()
	if err := r.mirror.Close(context.Background()); err != nil {
		r.Error(err)
	}
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// set sets the value of a config map, and creates it if necessary.
func (r *rig) set(namespace, name, value string, labels ...string) string {
	r.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"v": value}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		cm.Labels = map[string]string{k: v}
	}
	out, err := r.server.Put(cm)
	r.must(err)
	return out.GetResourceVersion()
}

func (r *rig) delete(namespace, name string) {
	r.Helper()
	r.must(r.server.Delete(configMaps, namespace, name))
}

// query returns the parameters of a query for a resource in the default cluster.
func (r *rig) query(resource string) read.Params {
	r.Helper()
	ask, err := r.resolve("", resource)
	r.must(err)
	return ask
}

func (r *rig) resolve(cluster, resource string) (read.Params, error) {
	c, err := r.mirror.Cluster(cluster)
	if err != nil {
		return read.Params{}, err
	}
	found, err := c.Resolve(r.ctx, resource)
	return read.Params{Cluster: c, Resource: found.GVR()}, err
}

// bind returns a bound query with the parameters.
func (r *rig) bind(ask read.Params, verb read.Verb) (*read.Query, error) {
	ask.Verb = verb
	q, err := read.NewQuery(ask)
	if err != nil {
		return q, err
	}
	of, err := ask.Cluster.ResourceFor(r.ctx, ask.Resource)
	if err != nil {
		return q, err
	}
	return q, q.Bind(of)
}

func (r *rig) get(ask read.Params, match read.Match, version uint64) (*read.Object, string, error) {
	q, err := r.bind(ask, read.Get)
	if err != nil {
		return nil, "", err
	}
	return r.reader.Get(r.ctx, q, match, version)
}

func (r *rig) stateOf(ask read.Params, match read.Match, version uint64) (*read.State, error) {
	q, err := r.bind(ask, read.List)
	if err != nil {
		return nil, err
	}
	return r.reader.State(r.ctx, q, match, version)
}

func (r *rig) events(ctx context.Context, ask read.Params, since string) (read.Events, error) {
	q, err := r.bind(ask, read.Watch)
	if err != nil {
		return nil, err
	}
	return r.reader.Watch(ctx, q, since)
}

// list returns the listed objects, as "namespace/name@version".
func (r *rig) list(ask read.Params) ([]string, read.ListMeta) {
	r.Helper()
	out, meta, err := r.listed(ask)
	r.must(err)
	return out, meta
}

func (r *rig) listErr(ask read.Params) error {
	_, _, err := r.listed(ask)
	return err
}

func (r *rig) listed(ask read.Params) ([]string, read.ListMeta, error) {
	q, err := r.bind(ask, read.List)
	if err != nil {
		return nil, read.ListMeta{}, err
	}
	return r.listedBy(q)
}

func (r *rig) listedBy(q *read.Query) ([]string, read.ListMeta, error) {
	out := []string{}
	meta, err := r.reader.List(r.ctx, q, func(o *read.Object) error {
		out = append(out, line(o))
		return nil
	})
	return out, meta, err
}

// refuse expects an error of a reason.
func (r *rig) refuse(err error, want mirror.Reason) *mirror.Error {
	r.Helper()
	e, ok := asError(err)
	if !ok || e.Reason != want {
		r.Fatalf("got the error %v (%s), want one of reason %s", err, mirror.ReasonOf(err), want)
	}
	if e.Message == "" {
		r.Errorf("the error of reason %s says nothing", want)
	}
	return e
}

func line(o *read.Object) string {
	return fmt.Sprintf("%s/%s@%s", o.GetNamespace(), o.GetName(), o.GetResourceVersion())
}

// watcher is an open watch.
type watcher struct {
	*rig
	events chan read.Event
	err    error // once events is closed
	cancel context.CancelFunc
}

func (r *rig) watch(ask read.Params, since string) *watcher {
	r.Helper()
	return r.watchBy(func(ctx context.Context) (read.Events, error) { return r.events(ctx, ask, since) })
}

func (r *rig) watchBy(begin func(context.Context) (read.Events, error)) *watcher {
	r.Helper()
	ctx, cancel := context.WithCancel(r.ctx)
	seq, err := begin(ctx)
	if err != nil {
		cancel()
		r.Fatal(err)
	}
	w := &watcher{rig: r, events: make(chan read.Event), cancel: cancel}
	go func() {
		defer close(w.events)
		for e, err := range seq {
			if err != nil {
				w.err = err
				return
			}
			select {
			case w.events <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

// next returns the next event other than a bookmark, as "TYPE namespace/name@version".
func (w *watcher) next() string {
	w.Helper()
	for e := range w.events {
		switch {
		case e.Type == read.Bookmark:
			continue
		case e.Object != nil:
			return string(e.Type) + " " + line(e.Object)
		}
		return string(e.Type)
	}
	return fmt.Sprintf("end: %s", mirror.ReasonOf(w.err))
}

func (w *watcher) expect(want ...string) {
	w.Helper()
	for _, want := range want {
		if got := w.next(); got != want {
			w.Fatalf("got %q, want %q", got, want)
		}
	}
}

func (w *watcher) stop() {
	w.cancel()
	for range w.events { //nolint:revive // until the loop has ended
	}
}

func selector(tb testing.TB, s string) labels.Selector {
	tb.Helper()
	out, err := labels.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func fieldSelector(tb testing.TB, s string) fields.Selector {
	tb.Helper()
	out, err := fields.ParseSelector(s)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func same(tb testing.TB, what string, got, want []string) {
	tb.Helper()
	if !slices.Equal(got, want) {
		tb.Fatalf("%s:\n got %v\nwant %v", what, got, want)
	}
}

func with(m map[string]*rest.Config, name string, c *rest.Config) map[string]*rest.Config {
	m = maps.Clone(m)
	m[name] = c
	return m
}
