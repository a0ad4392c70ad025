package kubeapi_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/controlplane"
)

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(controlplane.Tests(m))
}

// rig is a cluster and a mirror that serves its API.
type rig struct {
	testing.TB
	mirror *mirror.Mirror
	ours   *api
	theirs *api
	stop   func()
}

// api is an API server.
type api struct {
	testing.TB
	config *rest.Config
	client *http.Client
}

func newAPI(tb testing.TB, config *rest.Config) *api {
	tb.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	if t, ok := client.Transport.(interface{ CloseIdleConnections() }); ok {
		tb.Cleanup(t.CloseIdleConnections)
	}
	tb.Cleanup(client.CloseIdleConnections)
	return &api{tb, config, client}
}

// start serves a mirror of the cluster of config.
func start(tb testing.TB, config *rest.Config, mo mirror.Options, so server.Options) *rig {
	tb.Helper()
	logger := slog.New(slog.DiscardHandler)
	mo.Logger, so.Logger = logger, logger
	m, err := mirror.New(mo)
	if err != nil {
		tb.Fatal(err)
	}
	if err := m.Set(tb.Context(), map[string]*rest.Config{"test": config}); err != nil {
		tb.Fatal(err)
	}
	theirs := newAPI(tb, config)
	s, err := server.New(m, so)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	r := &rig{TB: tb, mirror: m, theirs: theirs}
	scheme := "http://"
	if so.TLS != nil {
		scheme = "https://"
	}
	r.ours = newAPI(tb, &rest.Config{Host: scheme + l.Addr().String(), QPS: -1})
	r.stop = sync.OnceFunc(func() {
		r.ours.client.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		if err := m.Close(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(r.stop)
	return r
}

// answer is the answer of an API server.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) String() string {
	return fmt.Sprintf("%d %s %q", a.code, a.header.Get("Content-Type"), a.body)
}

// ask is a GET.
type ask struct {
	path   string
	query  url.Values
	accept string
	header http.Header
}

func (q ask) url() string {
	if len(q.query) == 0 {
		return q.path
	}
	return q.path + "?" + q.query.Encode()
}

func (a *api) get(path string) answer { return a.ask(ask{path: path}) }

func (a *api) ask(q ask) answer {
	a.Helper()
	ctx, cancel := context.WithTimeout(a.Context(), time.Minute)
	defer cancel()
	answer, err := a.try(ctx, q)
	if err != nil {
		a.Fatal(err)
	}
	return answer
}

func (a *api) try(ctx context.Context, q ask) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.config.Host+q.url(), nil)
	if err != nil {
		return answer{}, err
	}
	for name, values := range q.header {
		req.Header[name] = values
	}
	if q.accept != "" {
		req.Header.Set("Accept", q.accept)
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "differential")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	return answer{resp.StatusCode, resp.Header, body}, err
}

// do writes to the cluster.
func (a *api) do(method, path, body string) map[string]any {
	a.Helper()
	out, err := a.write(method, path, body)
	if err != nil {
		a.Fatal(err)
	}
	return out
}

func (a *api) write(method, path, body string) (map[string]any, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, a.config.Host+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %s %v %s", method, path, resp.Status, err, raw)
	}
	out := map[string]any{}
	return out, json.Unmarshal(raw, &out)
}
