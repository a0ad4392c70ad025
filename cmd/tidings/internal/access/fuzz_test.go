package access_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/access"
)

// FuzzReviews has a cluster answer anything to TokenReviews and SubjectAccessReviews.
// Only a clearly positive answer admits a caller.
func FuzzReviews(f *testing.F) {
	const yes = `{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"authenticated":true,"user":{"username":"alice"}}}`
	const may = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
	for _, seed := range [][2]string{
		{yes, may}, {yes, ``}, {yes, `null`}, {yes, `{}`}, {yes, `[]`}, {yes, `{"status":{"allowed":"true"}}`}, {yes, `{"status":{"allowed":true,"denied":true}}`}, {yes, may + may},
		{``, may}, {`{"status":{"authenticated":true}}`, may}, {`{"status":{"authenticated":true,"error":"x","user":{"username":"a","groups":[null]}}}`, may}, {yes[:40], may},
		{strings.Repeat(`{"a":`, 50_000), may}, {yes, strings.Repeat("[", 100_000)}, {`{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`, yes},
		{`{"kind":"Status","status":"Failure","code":403,"message":"` + "\x1b[2J" + `"}`, may}, {"k8s\x00\x0a\x04\x0a\x02v1", may}, {yes, "\xff\xfe"},
	} {
		f.Add(seed[0], seed[1], uint16(201), "application/json")
	}
	f.Add(yes, may, uint16(500), "application/json")
	f.Add(yes, may, uint16(302), "application/json")
	f.Add(yes, may, uint16(201), "application/vnd.kubernetes.protobuf")
	f.Add(yes, may, uint16(201), "text/html")
	f.Fuzz(func(t *testing.T, token, right string, code uint16, mediaType string) {
		if code < 200 || code > 599 {
			return
		}
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header()["Content-Type"] = []string{strings.ToValidUTF8(strings.Map(printable, mediaType), "")}
			w.WriteHeader(int(code))
			if strings.HasSuffix(r.URL.Path, "/tokenreviews") {
				_, _ = io.WriteString(w, token)
			} else {
				_, _ = io.WriteString(w, right)
			}
		}))
		defer srv.Close()
		c, err := cluster.New("test", &rest.Config{Host: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		gate, err := access.NewGate(access.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer gate.Close()
		reviewer, err := gate.Reviewer(c, func(*cluster.Cluster) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		caller, err := reviewer.Authenticate(t.Context(), bearer("a-token-4711"))
		if err == nil {
			if code >= 300 || !strings.Contains(strings.ToLower(token), "true") && !strings.HasPrefix(token, "k8s\x00") {
				t.Errorf("%d %q lets %v in", code, token, caller.User())
			}
			err = reviewer.Authorize(t.Context(), caller, pods)
			if err == nil && (code >= 300 || !strings.Contains(strings.ToLower(right), "true") && !strings.HasPrefix(right, "k8s\x00")) {
				t.Errorf("%d %q allows it", code, right)
			}
		}
		if err != nil && strings.Contains(err.Error(), "a-token-4711") && !strings.Contains(token+right, "4711") {
			t.Errorf("the token is in the error %v", err)
		}
	})
}

func printable(r rune) rune {
	if r < ' ' || r >= 0x7f {
		return -1
	}
	return r
}
