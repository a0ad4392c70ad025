package server_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
	"github.com/tidings-io/tidings/cmd/tidings/internal/mirror"
	"github.com/tidings-io/tidings/cmd/tidings/internal/server"
	"github.com/tidings-io/tidings/internal/fakeapi"
)

// BenchmarkGet measures a get of one object by an authenticated caller, without a
// network: everything from the path to the response, with cached reviews.
func BenchmarkGet(b *testing.B) {
	gate, err := access.NewGate(access.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(gate.Close)
	c := fakeapi.New(fakeapi.Options{
		Allow: func(fakeapi.User, fakeapi.Access) bool { return true },
		Users: map[string]fakeapi.User{"mirror-token": {Name: "mirror"}, "alice-token": {Name: "alice"}},
	})
	config, stop := fakeapi.InProcess(c)
	b.Cleanup(stop)
	config.BearerToken = "mirror-token"
	m, err := mirror.New(mirror.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = m.Close(context.Background()) })
	if err := m.Set(b.Context(), map[string]*rest.Config{"test": config}); err != nil {
		b.Fatal(err)
	}
	s, err := server.New(m, server.Options{Gate: gate})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := c.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}); err != nil {
		b.Fatal(err)
	}
	handler := s.Handler()
	for _, path := range []struct{ name, path string }{
		{"any", "/api/v1/namespaces/default/configmaps/one?resourceVersion=0"},
		{"newest", "/api/v1/namespaces/default/configmaps/one"},
	} {
		b.Run(path.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path.path, nil)
				req.Header.Set("Authorization", "Bearer alice-token")
				out := discard{header: http.Header{}}
				handler.ServeHTTP(&out, req)
				if out.code != 0 && out.code != http.StatusOK {
					b.Fatal(out.code)
				}
			}
		})
	}
}

// discard is a ResponseWriter that discards the body.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(code int)        { d.code = code }
func (d *discard) Write(p []byte) (int, error) { return io.Discard.Write(p) }
