package informer_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/informer"
	"github.com/tidings-io/tidings/internal/codec"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// Objects that are kept as JSON are listed, in large pages, not streamed.
func TestEncodedObjectsAreListed(t *testing.T) {
	inBubble(t, fakeapi.Options{}, func(r *rig) {
		for i := range 3 {
			r.set("a", fmt.Sprintf("x%d", i), "value")
		}
		var mu sync.Mutex
		var asked []string
		config, stop := fakeapi.InProcess(r.server)
		r.Cleanup(stop)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if q := req.URL.Query(); req.URL.Path == "/api/v1/configmaps" {
					mu.Lock()
					defer mu.Unlock()
					asked = append(asked, fmt.Sprintf("watch=%s limit=%s initial=%s", q.Get("watch"), q.Get("limit"), q.Get("sendInitialEvents")))
				}
				return next.RoundTrip(req)
			})
		})
		conn, err := cluster.New("test", config)
		r.must(err)
		inf, err := informer.New[*codec.Raw](conn, informer.Resource("configmaps"), informer.Compact())
		r.must(err)
		r.must(inf.Start(r.Context()))
		r.stopAfter(inf)
		synctest.Wait()
		view := inf.View()
		defer view.Release()
		if view.Len() != 3 {
			t.Errorf("%d objects", view.Len())
		}
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"watch= limit=10000 initial=", "watch=true limit= initial="}; !slices.Equal(asked, want) {
			t.Errorf("requests %q, not %q", asked, want)
		}
	})
}
