package discovery_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/discovery"
)

// fake is a cluster with configurable answers.
type fake struct {
	*httptest.Server
	asked      atomic.Int32
	notes      atomic.Int32 // requests with an If-None-Match
	mu         sync.Mutex
	answer     http.HandlerFunc
	connection *cluster.Cluster
}

func newFake(t *testing.T, answer http.HandlerFunc) *fake {
	f := &fake{answer: answer}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.asked.Add(1)
		if r.Header.Get("If-None-Match") != "" {
			f.notes.Add(1)
		}
		f.mu.Lock()
		answer := f.answer
		f.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(f.Close)
	c, err := cluster.New("fake", &rest.Config{Host: f.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	f.connection = c
	return f
}

func (f *fake) now(answer http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

func (f *fake) handler(everything bool) *discovery.Handler {
	return discovery.New(discovery.Options{
		Cluster:    func(context.Context) (*cluster.Cluster, error) { return f.connection, nil },
		Everything: everything, Logger: slog.New(slog.DiscardHandler),
	})
}

func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func says(text, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", etag)
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("If-None-Match") == etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		fmt.Fprint(w, text)
	}
}

func broken(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "no", http.StatusInternalServerError)
}

func TestClusterIsAskedOnce(t *testing.T) {
	hold, arrived := make(chan struct{}), make(chan struct{}, 1)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-hold
		says(`{"major":"1"}`, `"a"`)(w, r)
	})
	h := f.handler(false)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if w := get(h, "/version"); w.Code != http.StatusOK || w.Body.String() != `{"major":"1"}` {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
	<-arrived
	close(hold)
	wg.Wait()
	if n := f.asked.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	if w := get(h, "/version", "If-None-Match", `W/"x", "a"`); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestChangesAreAskedFor(t *testing.T) {
	f := newFake(t, says(`one`, `"1"`))
	h := f.handler(false)
	get(h, "/openapi/v2")
	h.Invalidate()
	if w := get(h, "/openapi/v2"); w.Body.String() != "one" || f.notes.Load() != 1 {
		t.Errorf("%s, after %d conditional requests", w.Body, f.notes.Load())
	}
	f.now(says(`two`, `"2"`))
	h.Invalidate()
	if w := get(h, "/openapi/v2"); w.Body.String() != "two" || w.Header().Get("Etag") != `"2"` {
		t.Errorf("%s %v", w.Body, w.Header())
	}
}

func TestStaleWhileClusterIsDown(t *testing.T) {
	f := newFake(t, says(`one`, `"1"`))
	h := f.handler(false)
	get(h, "/openapi/v2")
	for _, down := range []http.HandlerFunc{broken, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }} {
		f.now(down)
		h.Invalidate()
		for range 2 {
			if w := get(h, "/openapi/v2"); w.Code != http.StatusOK || w.Body.String() != "one" || !strings.HasPrefix(w.Header().Get("Warning"), "110 ") {
				t.Errorf("%d %s %v", w.Code, w.Body, w.Header())
			}
		}
		if w := get(h, "/version"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `cluster fake for /version`) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
	f.now(says(`two`, `"2"`))
	h.Invalidate()
	if w := get(h, "/openapi/v2"); w.Body.String() != "two" || w.Header().Get("Warning") != "" {
		t.Errorf("%s %v", w.Body, w.Header())
	}
}

// A slow cluster is not waited for if there is an old answer.
func TestStaleWhileClusterIsSlow(t *testing.T) {
	f := newFake(t, says(`one`, `"1"`))
	h := f.handler(false)
	get(h, "/openapi/v2")
	gone := make(chan struct{})
	f.now(func(http.ResponseWriter, *http.Request) { <-gone })
	h.Invalidate()
	w := get(h, "/openapi/v2")
	close(gone)
	if w.Body.String() != "one" || w.Header().Get("Warning") == "" {
		t.Errorf("%s %v", w.Body, w.Header())
	}
}

// If the mirror may not read an answer, the error does not blame the caller, and an old
// answer is no longer served.
func TestMirrorWithoutRights(t *testing.T) {
	f := newFake(t, says(`one`, `"1"`))
	h := f.handler(false)
	get(h, "/openapi/v2")
	f.now(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "secret reason", http.StatusForbidden) })
	h.Invalidate()
	if w := get(h, "/openapi/v2"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secret reason") || !strings.Contains(w.Body.String(), "the mirror itself may not read") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCompression(t *testing.T) {
	text := strings.Repeat("schema ", 1000)
	h := newFake(t, says(text, `"1"`)).handler(false)
	w := get(h, "/openapi/v3", "Accept-Encoding", "gzip")
	if w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len() > len(text)/10 {
		t.Fatalf("%v, %d bytes", w.Header(), w.Body.Len())
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(z); err != nil || string(plain) != text {
		t.Errorf("%d bytes, %v", len(plain), err)
	}
	if w := get(h, "/openapi/v3"); w.Body.String() != text || w.Header().Get("Content-Encoding") != "" {
		t.Errorf("%d bytes, %v", w.Body.Len(), w.Header())
	}
}

// A redirect leads through the prefix of the request.
func TestRedirectsKeepThePrefix(t *testing.T) {
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("hash") == "old" {
			http.Redirect(w, r, "/openapi/v3/apis/apps/v1?hash=new", http.StatusMovedPermanently)
			return
		}
		fmt.Fprint(w, "schema")
	})
	w := get(http.StripPrefix("/clusters/a", f.handler(false)), "/clusters/a/openapi/v3/apis/apps/v1?hash=old")
	if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != "/clusters/a/openapi/v3/apis/apps/v1?hash=new" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestOnlyTheMirrorsCredentialsAndNothingOfTheCallers(t *testing.T) {
	var got http.Header
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header.Clone(); fmt.Fprint(w, "{}") })
	get(f.handler(true), "/version", "Authorization", "Bearer callers", "Cookie", "c=1", "Impersonate-User", "admin", "X-Remote-User", "admin")
	for _, name := range []string{"Authorization", "Cookie", "Impersonate-User", "X-Remote-User"} {
		if got.Get(name) != "" {
			t.Errorf("%s: %s", name, got.Get(name))
		}
	}
}

// Different spellings of a request share one cached answer. Answers to requests that
// callers can invent are not cached.
func TestCallersCannotMakeTheCacheGrow(t *testing.T) {
	f := newFake(t, says(`one`, `"1"`))
	h := f.handler(true)
	asked := func(do func()) int32 {
		before := f.asked.Load()
		do()
		return f.asked.Load() - before
	}
	if n := asked(func() {
		for i := range 400 {
			get(h, "/apis", "Accept", fmt.Sprintf("text/x-%d, application/json;q=0.%d, */*;q=0.1", i, 200+i))
		}
		get(h, "/apis")
		get(h, "/apis", "Accept", "*/*")
	}); n != 1 {
		t.Errorf("%d requests for 402 spellings of one representation", n)
	}
	for what, ask := range map[string]func(i int){
		"parameters": func(i int) { get(h, "/apis", "Accept", fmt.Sprintf("application/json;x=%d", i)) },
		"types":      func(i int) { get(h, "/apis", "Accept", fmt.Sprintf("text/x-%d", i)) },
		"forms":      func(i int) { get(h, "/apis", "Accept", fmt.Sprintf("application/json;g=a;v=v%d;as=b", i)) },
		"hashes":     func(i int) { get(h, fmt.Sprintf("/openapi/v3/apis/apps/v1?hash=%d", i)) },
	} {
		if n := asked(func() {
			for range 2 {
				for i := range 10 {
					ask(i)
				}
			}
		}); n != 20 {
			t.Errorf("%s: 20 requests caused %d to the cluster", what, n)
		}
	}
	if n := asked(func() {
		for range 10 {
			get(h, "/openapi/v3/apis/apps/v1?hash=now")
		}
	}); n != 1 {
		t.Errorf("%d requests for a schema by its hash", n)
	}
}

func TestCacheIsBoundedInBytes(t *testing.T) {
	noise := make([]byte, 10<<10)
	_, _ = rand.Read(noise)
	f := newFake(t, says(string(noise), `"1"`))
	h := discovery.New(discovery.Options{Cluster: func(context.Context) (*cluster.Cluster, error) { return f.connection, nil }, CacheBytes: 100 << 10})
	all := func() {
		for i := range 50 {
			get(h, fmt.Sprintf("/openapi/v3/x%d", i))
		}
	}
	all()
	if f.asked.Load() != 50 {
		t.Fatal(f.asked.Load())
	}
	all()
	if again := f.asked.Load() - 50; again < 40 {
		t.Errorf("of 50 answers of 10 kB, all but %d are kept in 100 kB", again)
	}
	before := f.asked.Load()
	for range 10 {
		get(h, "/openapi/v3/x0")
	}
	if n := f.asked.Load() - before; n > 3 {
		t.Errorf("%d requests for an answer in constant use", n)
	}
}

// A caller that invents names causes few requests at a time, and cached answers do not wait
// for them.
func TestInventedNames(t *testing.T) {
	var under, most atomic.Int32
	release := make(chan struct{})
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/invented") {
			if n := under.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer under.Add(-1)
			<-release
			http.NotFound(w, r)
			return
		}
		says(`one`, `"1"`)(w, r)
	})
	h := f.handler(true)
	get(h, "/apis")
	var flood sync.WaitGroup
	for i := range 100 {
		flood.Go(func() {
			if w := get(h, fmt.Sprintf("/apis/invented-%d", i)); w.Code != http.StatusNotFound || w.Header().Get("Vary") != "" {
				t.Errorf("%d %v", w.Code, w.Header())
			}
		})
	}
	for under.Load() < 16 {
		runtime.Gosched()
	}
	h.Invalidate()
	if w := get(h, "/apis"); w.Code != http.StatusOK || w.Header().Get("Warning") != "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	close(release)
	flood.Wait()
	if most.Load() > 16 {
		t.Errorf("%d requests at once", most.Load())
	}
}

func TestWhatIsNotDiscovery(t *testing.T) {
	f := newFake(t, says("{}", `"1"`))
	h := f.handler(true)
	for _, path := range []string{"/", "/api/v1/pods", "/apis/apps/v1/deployments", "/metrics", "/openapi", "/openapi/v4", "/versions", "/version/x", "/apis//v1", "/apis/../v1", "/api/.", "/openapi/v3/a/b/c/d/e/f/g"} {
		if w := get(h, path); w.Code != http.StatusNotFound || discovery.Answers(path) {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/apis", bytes.NewReader(nil)))
	if w.Code != http.StatusMethodNotAllowed {
		t.Error(w.Code)
	}
	if f.asked.Load() != 0 {
		t.Error("a request was sent to the cluster")
	}
	none := discovery.New(discovery.Options{Cluster: func(context.Context) (*cluster.Cluster, error) {
		return nil, apierrors.NewNotFound(resource, "elsewhere")
	}})
	if w := get(none, "/apis"); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), `"kind":"Status"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	none = discovery.New(discovery.Options{Cluster: func(context.Context) (*cluster.Cluster, error) { return nil, errors.New("why") }})
	if w := get(none, "/apis"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "why") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Requests that all callers have abandoned leave nothing behind, unless they have been
// sent.
func TestFlightsOfRequestsThatAreGivenUp(t *testing.T) {
	release := make(chan struct{})
	f := newFake(t, func(http.ResponseWriter, *http.Request) { <-release })
	h := f.handler(false)
	before := runtime.NumGoroutine()
	for i := range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprint("/openapi/v3/api/v1?hash=", i), nil))
	}
	// There are at most 16 connections, with some goroutines at either end.
	deadline := time.Now().Add(10 * time.Second)
	for runtime.NumGoroutine() > before+200 {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines are left", runtime.NumGoroutine()-before)
			break
		}
		runtime.Gosched()
	}
	close(release)
	if w := get(h, "/version"); w.Code != http.StatusOK {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
