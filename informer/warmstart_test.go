package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// snapshot is a Restorer with the state that an informer once had.
type snapshot struct {
	version string
	objects []*corev1.ConfigMap
	err     error
	used    int
}

func (s *snapshot) Restore(_ context.Context, each func([]byte) error) (string, error) {
	s.used++
	for _, o := range s.objects {
		raw, err := json.Marshal(o)
		if err != nil {
			return "", err
		}
		if err := each(raw); err != nil {
			return "", err
		}
	}
	return s.version, s.err
}

// take returns what an informer has.
func take(inf *informer.Informer[*corev1.ConfigMap]) *snapshot {
	view := inf.View()
	defer view.Release()
	s := &snapshot{version: view.ResourceVersion()}
	s.objects = view.List(informer.Query{})
	return s
}

// earlier runs an informer until it has what the cluster has.
func (r *rig) earlier() *snapshot {
	r.Helper()
	inf := r.configMapInformer()
	r.must(inf.Start(r.ctx))
	synctest.Wait()
	r.must(inf.Stop(r.ctx))
	return take(inf)
}

// through connects to the cluster and calls seen for each request.
func (r *rig) through(seen func(*http.Request)) *cluster.Cluster {
	r.Helper()
	config, stop := fakeapi.InProcess(r.server)
	r.Cleanup(stop)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			seen(req)
			return next.RoundTrip(req)
		})
	})
	conn, err := cluster.New("test", config)
	r.must(err)
	return conn
}

// An informer with the state of an earlier run watches from there. It lists nothing, and
// its subscribers see what has changed meanwhile as changes.
func TestWarmStartListsNothing(t *testing.T) {
	for name, opts := range map[string][]informer.Option{
		"typed":    nil,
		"compact":  {informer.Compact()},
		"filtered": {informer.Filter(func(o *corev1.ConfigMap) bool { return o.Name != "no" })},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("a", "same", "1")
				r.set("a", "changed", "1")
				r.set("b", "gone", "1")
				s := r.earlier()
				r.set("a", "changed", "2")
				r.set("b", "new", "2")
				r.delete("b", "gone")
				r.server.ResetCounts()

				inf := r.configMapInformer(append(opts, informer.StartFrom(s))...)
				d := &diary[*corev1.ConfigMap]{}
				inf.AddHandler(d)
				r.must(inf.Start(r.ctx))
				synctest.Wait()
				r.holds(inf, "a/changed=2", "a/same=1", "b/new=2")
				r.expect(d, "ADDED a/changed >1 initial", "ADDED a/same >1 initial", "ADDED b/gone >1 initial", "SYNCED",
					"MODIFIED a/changed 1>2", "ADDED b/new >2", "DELETED b/gone 1>1")
				if n := r.server.Count("list", configMaps); n != 0 || !strings.Contains(r.log.String(), "going on where an earlier run ended") {
					t.Errorf("%d lists, and the log says %s", n, r.log.String())
				}
				if s := inf.Status(); s.Lists != 1 || s.Errors != 0 {
					t.Errorf("the status is %+v", s)
				}
			})
		})
	}
}

// Where the state is of no use, the informer lists, and holds what the cluster has. It
// does not decode again what has not changed.
func TestWarmStartThatCannotGoOn(t *testing.T) {
	for name, spoil := range map[string]func(*rig, *snapshot){
		"the version is too old":         func(r *rig, _ *snapshot) { r.server.Compact() },
		"the cluster is an older backup": func(_ *rig, s *snapshot) { s.version = "900000" },
		"there is none":                  func(_ *rig, s *snapshot) { *s = snapshot{} },
		"it cannot be read":              func(_ *rig, s *snapshot) { s.err = errors.New("a block is damaged") },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				r.set("a", "same", "1")
				r.set("a", "changed", "1")
				r.set("b", "gone", "1")
				s := r.earlier()
				r.set("a", "changed", "2")
				r.delete("b", "gone")
				spoil(r, s)
				inf := r.configMapInformer(informer.StartFrom(s))
				d := &diary[*corev1.ConfigMap]{}
				inf.AddHandler(d)
				r.must(inf.Start(r.ctx))
				synctest.Wait()
				r.holds(inf, "a/changed=2", "a/same=1")
				r.expect(d, "ADDED a/changed >2 initial", "ADDED a/same >1 initial", "SYNCED")
				if said := strings.Contains(r.log.String(), "cannot"); said == (name == "there is none") {
					t.Errorf("the log says %s", r.log.String())
				}
				r.set("a", "changed", "3")
				synctest.Wait()
				r.expect(d, "MODIFIED a/changed 2>3")
				r.must(inf.Empty(r.ctx))
				r.must(inf.Start(r.ctx))
				if s.used != 1 {
					t.Errorf("the state was read %d times", s.used)
				}
			})
		})
	}
}

// A server that is away is waited for. Nothing is served before it has accepted a watch.
func TestWarmStartWaitsForTheServer(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		r.set("a", "x", "1")
		s := r.earlier()
		r.set("a", "x", "2")
		r.server.SetDown(true)
		r.server.ResetCounts()
		inf := r.configMapInformer(informer.StartFrom(s))
		started := make(chan error, 1)
		go func() { started <- inf.Start(r.ctx) }()
		time.Sleep(5 * time.Minute)
		view := inf.View()
		if view.Synced() || view.Len() != 0 {
			t.Errorf("%d objects while the server is away", view.Len())
		}
		view.Release()
		r.server.SetDown(false)
		r.must(<-started)
		synctest.Wait()
		r.holds(inf, "a/x=2")
		if n := r.server.Count("list", configMaps); n != 0 {
			t.Errorf("%d lists", n)
		}
	})
}

// A server that does not stream lists is asked for its version in another way.
func TestWarmStartWithoutStreamedLists(t *testing.T) {
	inBubble(t, fakeapi.Options{NoWatchList: true}, func(r *rig) {
		r.set("a", "x", "1")
		s := r.earlier()
		r.set("a", "x", "2")
		var full []string
		r.conn = r.through(func(req *http.Request) {
			if q := req.URL.Query(); strings.HasSuffix(req.URL.Path, "/configmaps") && !q.Has("watch") && q.Get("limit") != "1" {
				full = append(full, req.URL.String())
			}
		})
		inf := r.configMapInformer(informer.StartFrom(s))
		r.must(inf.Start(r.ctx))
		synctest.Wait()
		r.holds(inf, "a/x=2")
		if len(full) > 0 {
			t.Errorf("it lists: %v", full)
		}
	})
}

// Only the objects that have changed are decoded, if the informer must list.
func TestWarmStartKeepsWhatAListRepeats(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for _, name := range []string{"a", "b", "c"} {
			r.set("default", name, "1")
		}
		s := r.earlier()
		r.set("default", "b", "2")
		r.server.Compact()
		var decoded []string
		inf := r.configMapInformer(informer.StartFrom(s), informer.Transform(func(o *corev1.ConfigMap) (*corev1.ConfigMap, error) {
			decoded = append(decoded, o.Name+"="+o.Data["v"])
			return o, nil
		}))
		r.must(inf.Start(r.ctx))
		if want := []string{"a=1", "b=1", "c=1", "b=2"}; !slices.Equal(decoded, want) {
			t.Errorf("decoded were %q, not %q", decoded, want)
		}
	})
}

func TestStartFromIsChecked(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for name, opts := range map[string][]informer.Option{
			"nil":        {informer.StartFrom(nil)},
			"namespaces": {informer.StartFrom(&snapshot{}), informer.InNamespace("a", "b")},
			"From":       {informer.StartFrom(&snapshot{}), informer.From("1")},
		} {
			if _, err := informer.New[*corev1.ConfigMap](r.conn, opts...); err == nil || !strings.Contains(err.Error(), "informer.StartFrom") {
				t.Errorf("%s: the error is %v", name, err)
			}
		}
	})
}
