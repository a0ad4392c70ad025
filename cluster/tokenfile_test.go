package cluster_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
)

// A token that is refused is read from its file again at once, not when client-go
// does: the request is made again with the new one, and those that follow carry
// it.
func TestTokenReplacedInItsFile(t *testing.T) {
	var good atomic.Value
	var requests atomic.Int32
	good.Store("first")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+good.Load().(string) {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, "no good: "+r.Header.Get("Authorization"))
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	c, err := cluster.New("test", &rest.Config{Host: server.URL, BearerTokenFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	try := func(method string, code int, tries int32) {
		t.Helper()
		requests.Store(0)
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader("body")
		}
		req, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/api", body)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.HTTPClient().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		said, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != code || requests.Load() != tries || strings.Contains(string(said), "Bearer") && !strings.Contains(string(said), "[redacted]") {
			t.Errorf("%s: %s after %d requests, %v: %s", method, resp.Status, requests.Load(), err, said)
		}
	}
	try(http.MethodGet, 200, 1)
	good.Store("second") // and the file does not have it yet
	try(http.MethodGet, 401, 1)
	write("second")
	try(http.MethodGet, 200, 2)
	try(http.MethodGet, 200, 1)
	good.Store("third")
	write("third")
	try(http.MethodPost, 401, 1) // whoever has the body may try again
	try(http.MethodPost, 200, 1)
	try(http.MethodGet, 200, 1)
	write("fourth") // not good yet
	try(http.MethodGet, 200, 1)
	good.Store("fifth")
	try(http.MethodGet, 401, 2)
	write("fifth")
	try(http.MethodGet, 200, 2)
}
