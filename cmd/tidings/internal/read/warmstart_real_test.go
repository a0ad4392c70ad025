package read_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/history"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/read"
	"github.com/tidings-io/tidings/internal/controlplane"
)

// On a real API server, a mirror that is started again lists nothing if the API server has
// the changes since, and otherwise has what the API server has.
func TestWarmStartOnARealAPIServer(t *testing.T) {
	cp := controlplane.Start(t)
	core, err := kubernetes.NewForConfig(cp.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	store, err := history.Open(t.TempDir(), history.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	var lists atomic.Int64 // of all config maps
	config := rest.CopyConfig(cp.AdminConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return counted(func(req *http.Request) (*http.Response, error) {
			q := req.URL.Query()
			if strings.HasSuffix(req.URL.Path, "/configmaps") && !strings.Contains(q.Get("fieldSelector"), "tidings.none") && (!q.Has("watch") || q.Has("sendInitialEvents")) {
				lists.Add(1)
			}
			return next.RoundTrip(req)
		})
	})
	configMap := func(name, value string) {
		t.Helper()
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}
		api := core.CoreV1().ConfigMaps("default")
		if _, err := api.Update(t.Context(), cm, metav1.UpdateOptions{}); err == nil {
			return
		}
		if _, err := api.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// run starts the mirror, waits until it has what the API server has, and stops it.
	run := func(name string, want int64) {
		t.Helper()
		lists.Store(0)
		r := newRig(t, nil, config, mirror.Options{Journal: history.NewRecording(store, history.RecordingOptions{})})
		defer r.close()
		r.reader = read.New(read.Options{})
		fresh := newRig(t, nil, cp.AdminConfig(), mirror.Options{})
		defer fresh.close()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			got, wanted := fmt.Sprint(r.whole("configmaps")), fmt.Sprint(fresh.whole("configmaps"))
			if got == wanted {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the mirror has\n%.3000s\nnot\n%.3000s", name, got, wanted)
			}
		}
		if n := lists.Load(); n > 0 != (want > 0) {
			t.Errorf("%s: %d lists", name, n)
		}
		deadline := time.Now().Add(time.Minute) // until all of it is recorded
		for version := r.version("configmaps"); ; time.Sleep(10 * time.Millisecond) {
			if _, seen := store.All()[0].Seen(); seen >= version {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: the history does not reach %d", name, version)
			}
		}
	}

	for i := range 20 {
		configMap(fmt.Sprint("c", i), "1")
	}
	run("the first start", 1)
	configMap("c1", "2")
	if err := core.CoreV1().ConfigMaps("default").Delete(t.Context(), "c2", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	configMap("new", "1")
	run("a restart", 0)
	run("another without a change", 0)

	configMap("c1", "3")
	restore, err := cp.SaveEtcd()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 { // more versions than an API server writes when it starts
		configMap("c3", fmt.Sprint(i))
	}
	configMap("undone", "1")
	run("a restart before the restore", 0)
	if err := restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	run("a restart after the cluster was restored from a backup", 1)

	configMap("c1", "4")
	if err := cp.ForgetHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	run("a restart after the changes were compacted", 1)
	run("the last one", 0)
}

// version is the resourceVersion that the mirror has.
func (r *rig) version(resource string) uint64 {
	r.Helper()
	state, err := r.stateOf(r.query(resource), read.Any, 0)
	r.must(err)
	defer state.Release()
	return version(state.ResourceVersion())
}

type counted func(*http.Request) (*http.Response, error)

func (f counted) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
