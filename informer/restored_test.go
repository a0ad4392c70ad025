package informer_test

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A cluster that has been restored from a backup is at an older version than
// before, and a watch from the last one is silent: the informer finds out, in
// each of its namespaces, also where it keeps only a part of what there is.
func TestClusterRestoredFromBackup(t *testing.T) {
	for name, opts := range map[string][]informer.Option{
		"all":            nil,
		"two namespaces": {informer.InNamespace("a", "b")},
		"filtered":       {informer.Filter(func(o *corev1.ConfigMap) bool { return o.Name != "no" })},
		"compact":        {informer.Compact()},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, fakeapi.Options{}, func(r *rig) {
				backup := fakeapi.New(fakeapi.Options{})
				_, err := backup.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x"}, Data: map[string]string{"v": "old"}})
				r.must(err)
				other, stop := fakeapi.InProcess(backup)
				r.Cleanup(stop)
				var restored atomic.Bool
				config, stop := fakeapi.InProcess(r.server)
				r.Cleanup(stop)
				config.Wrap(func(next http.RoundTripper) http.RoundTripper {
					return roundTripper(func(req *http.Request) (*http.Response, error) {
						if restored.Load() {
							return other.Transport.RoundTrip(req)
						}
						return next.RoundTrip(req)
					})
				})
				conn, err := cluster.New("test", config)
				r.must(err)

				r.set("a", "x", "old")
				for _, value := range []string{"new", "newer", "newest"} {
					r.set("a", "x", value)
					r.set("b", "y", value)
				}
				inf, err := informer.New[*corev1.ConfigMap](conn, append(opts, informer.Logger(slog.New(slog.NewTextHandler(r.log, nil))))...)
				r.must(err)
				r.stopAfter(inf)
				r.must(inf.Start(r.ctx))
				r.holds(inf, "a/x=newest", "b/y=newest")
				restored.Store(true)
				r.server.AbortWatches(configMaps)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				r.holds(inf, "a/x=old")
			})
		})
	}
}
