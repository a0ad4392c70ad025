package passthrough_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"

	"github.com/tidings-io/tidings/cluster"
	"github.com/tidings-io/tidings/cmd/tidings/internal/kubeapi/passthrough"
)

const secret = "the-mirrors-own-secret"

// recorder is a cluster that records all requests.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	dumps    []string
	answer   http.HandlerFunc
	mirror   *cluster.Cluster // as the mirror is connected to it
}

func newRecorder(t *testing.T, answer http.HandlerFunc) *recorder {
	t.Helper()
	rec := &recorder{answer: answer}
	rec.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, r.Header.Get("Upgrade") == "")
		if err != nil {
			t.Error(err)
		}
		rec.mu.Lock()
		rec.requests = append(rec.requests, r)
		rec.dumps = append(rec.dumps, string(dump))
		rec.mu.Unlock()
		rec.answer(w, r)
	}))
	rec.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	rec.EnableHTTP2 = true
	rec.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	rec.StartTLS()
	t.Cleanup(rec.Close)
	cert, key, err := certutil.GenerateSelfSignedCertKey(secret, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rec.Certificate().Raw})
	rec.mirror, err = cluster.New("recorded", &rest.Config{
		Host: rec.URL, BearerToken: secret, UserAgent: "tidings",
		Impersonate:     rest.ImpersonationConfig{UserName: secret},
		TLSClientConfig: rest.TLSClientConfig{CAData: ca, CertData: cert, KeyData: key},
		WrapTransport: func(rt http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				r = r.Clone(r.Context())
				r.Header.Set("X-Extra", secret)
				return rt.RoundTrip(r)
			})
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rec.mirror.Close)
	return rec
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serve passes requests through, at the root and at a prefix.
func (rec *recorder) serve(t *testing.T, change func(*passthrough.Options)) *httptest.Server {
	t.Helper()
	opts := passthrough.Options{
		Cluster: func(context.Context) (*cluster.Cluster, error) { return rec.mirror, nil }, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	h := passthrough.New(opts)
	t.Cleanup(h.Close)
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle("/clusters/recorded/", http.StripPrefix("/clusters/recorded", h))
	s := httptest.NewUnstartedServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func (rec *recorder) last() (*http.Request, string) {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	n := len(rec.requests) - 1
	return rec.requests[n], rec.dumps[n]
}

func do(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(answer)
}

// No request carries the mirror's own credentials to the cluster. It carries only those of
// the caller.
func TestMirrorsCredentialsNeverLeave(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "done") })
	s := rec.serve(t, nil)
	paths := []string{"/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/p/log?follow=true", "/api/v1/namespaces/a/pods/p/exec?command=sh", "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/apps/v1/namespaces/a/deployments/d/scale", "/api/v1/namespaces/a/services/s:80/proxy/x%2Fy?q=%2F"}
	for _, path := range paths {
		for _, prefix := range []string{"", "/clusters/recorded"} {
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions} {
				for _, headers := range [][]string{
					{"Authorization", "Bearer callers"},
					{"Authorization", "Bearer callers", "Impersonate-User", "someone", "Impersonate-Group", "g", "Impersonate-Group", "h", "Impersonate-Extra-Scopes", "x"},
					{"Authorization", "Bearer callers", "X-Remote-User", "admin", "X-Remote-Group", "system:masters", "Cookie", "session=1", "X-Forwarded-For", "6.6.6.6", "X-Real-Ip", "6.6.6.6", "Proxy-Authorization", "Basic eDp5"},
					{"Authorization", "Bearer callers", "Connection", "Authorization, Impersonate-User", "Keep-Alive", "5"},
					{"Authorization", "Bearer callers", "Connection", "Upgrade", "Upgrade", "SPDY/3.1"},
				} {
					resp, body := do(t, method, s.URL+prefix+path, "body", headers...)
					if resp.StatusCode != http.StatusOK || body != "done" {
						t.Fatalf("%s %s: %s %s", method, path, resp.Status, body)
					}
					got, dump := rec.last()
					if strings.Contains(dump, secret) || len(got.TLS.PeerCertificates) > 0 {
						t.Fatalf("the mirror's credentials went out:\n%s", dump)
					}
					if got.RequestURI != path || got.Method != method || !strings.Contains(dump, "body") && headers[len(headers)-1] != "SPDY/3.1" {
						t.Errorf("%s %s arrived as\n%s", method, path, dump)
					}
					if a := got.Header["Authorization"]; len(a) != 1 || a[0] != "Bearer callers" {
						t.Errorf("Authorization %q", a)
					}
					for _, name := range []string{"X-Remote-User", "X-Remote-Group", "Cookie", "Proxy-Authorization", "X-Real-Ip", "Keep-Alive"} {
						if got.Header.Get(name) != "" {
							t.Errorf("%s went out", name)
						}
					}
					if from := got.Header["X-Forwarded-For"]; len(from) != 1 || from[0] != "127.0.0.1" {
						t.Errorf("from %q", from)
					}
					as := got.Header["Impersonate-Group"]
					if wanted := len(headers) > 4 && headers[2] == "Impersonate-User"; wanted != (got.Header.Get("Impersonate-User") == "someone" && len(as) == 2 && got.Header.Get("Impersonate-Extra-Scopes") == "x") || !wanted && len(as) > 0 {
						t.Errorf("%v arrived as %v", headers, got.Header)
					}
				}
			}
		}
	}
}

// Credentials that were found and removed from the request before are the ones that are
// used.
func TestCreditOfSomebodyElse(t *testing.T) {
	rec := newRecorder(t, func(http.ResponseWriter, *http.Request) {})
	known := true
	s := rec.serve(t, func(o *passthrough.Options) {
		o.SetCredentials = func(_ *http.Request, to http.Header) bool {
			to.Set("Authorization", "Bearer found")
			return known
		}
	})
	do(t, http.MethodGet, s.URL+"/api/v1/x", "", "Authorization", "Bearer raw", "Impersonate-User", "raw")
	if got, _ := rec.last(); got.Header.Get("Authorization") != "Bearer found" || got.Header.Get("Impersonate-User") != "" {
		t.Errorf("%v", got.Header)
	}
	known = false
	if resp, _ := do(t, http.MethodGet, s.URL+"/api/v1/x", ""); resp.StatusCode != http.StatusUnauthorized || len(rec.requests) != 1 {
		t.Errorf("%s", resp.Status)
	}
}

func TestRefusals(t *testing.T) {
	rec := newRecorder(t, func(http.ResponseWriter, *http.Request) {})
	s := rec.serve(t, nil)
	for _, headers := range [][]string{nil, {"Impersonate-User", "admin"}, {"Authorization", ""}} {
		resp, body := do(t, http.MethodDelete, s.URL+"/api/v1/namespaces/a", "", headers...)
		if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(body, `"kind":"Status"`) || !strings.Contains(body, "bearer token") {
			t.Errorf("%v: %s %s", headers, resp.Status, body)
		}
	}
	// A client certificate cannot be passed through.
	h := passthrough.New(passthrough.Options{Cluster: func(context.Context) (*cluster.Cluster, error) { return rec.mirror, nil }})
	defer h.Close()
	r := httptest.NewRequest(http.MethodDelete, "/api/v1/namespaces/a", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "client certificate cannot be passed through") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if len(rec.requests) > 0 {
		t.Errorf("something reached the cluster:\n%s", rec.dumps)
	}
	elsewhere := rec.serve(t, func(o *passthrough.Options) {
		o.Cluster = func(context.Context) (*cluster.Cluster, error) { return nil, errors.New("which cluster?") }
	})
	if resp, body := do(t, http.MethodGet, elsewhere.URL+"/api/v1/x", "", "Authorization", "Bearer a"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "which cluster?") {
		t.Errorf("%s %s", resp.Status, body)
	}
}

func TestClusterThatDoesNotAnswer(t *testing.T) {
	rec := newRecorder(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	var logged bytes.Buffer
	s := rec.serve(t, func(o *passthrough.Options) { o.Logger = slog.New(slog.NewTextHandler(&logged, nil)) })
	resp, body := do(t, http.MethodPost, s.URL+"/api/v1/secret-name", "a", "Authorization", "Bearer a")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "cluster recorded does not answer") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if s.Close(); !strings.Contains(logged.String(), "could not be passed through") || strings.Contains(logged.String(), "secret-name") {
		t.Errorf("logged: %s", logged.String())
	}
}

// Answers are those of the cluster, to the byte.
func TestAnswersAreUnchanged(t *testing.T) {
	rec := newRecorder(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.Header().Set("Warning", `299 - "old"`)
		w.Header().Set("Audit-Id", "1")
		w.Header().Set("Content-Encoding", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Location", "/api/v1/elsewhere")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, "\x00\xff")
	})
	s := rec.serve(t, nil)
	for prefix, location := range map[string]string{"": "/api/v1/elsewhere", "/clusters/recorded": "/clusters/recorded/api/v1/elsewhere"} {
		resp, body := do(t, http.MethodGet, s.URL+prefix+"/api/v1/x", "", "Authorization", "Bearer a", "Accept-Encoding", "gzip")
		h := resp.Header
		if resp.StatusCode != http.StatusConflict || body != "\x00\xff" || h.Get("Content-Type") != "application/vnd.kubernetes.protobuf" || h.Get("Warning") != `299 - "old"` || h.Get("Audit-Id") != "1" || h.Get("Content-Encoding") != "gzip" || h.Get("Location") != location {
			t.Errorf("%s %q %v", resp.Status, body, h)
		}
	}
	if _, _ = do(t, http.MethodGet, s.URL+"/api/v1/x", "", "Authorization", "Bearer a"); true {
		if got, _ := rec.last(); got.Header.Get("Accept-Encoding") != "" {
			t.Errorf("the caller did not ask for %s", got.Header.Get("Accept-Encoding"))
		}
	}
}

// Pieces of an answer, such as the lines of a log, arrive when the cluster sends them.
func TestStreams(t *testing.T) {
	next := make(chan string)
	rec := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) {
		for line := range next {
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		}
	})
	s := rec.serve(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/namespaces/a/pods/p/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer a")
	go func() { next <- "first" }()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"first", "second", "third"} {
		if got, err := lines.ReadString('\n'); err != nil || got != want+"\n" {
			t.Fatalf("%q, %v", got, err)
		}
		if want != "third" {
			next <- map[string]string{"first": "second", "second": "third"}[want]
		}
	}
	close(next)
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

// Upgraded connections are passed through in both directions.
func TestUpgrades(t *testing.T) {
	rec := newRecorder(t, nil)
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		rec.answer = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != protocol || r.Header.Get("Connection") != "Upgrade" {
				t.Errorf("%v", r.Header)
			}
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", protocol)
			w.Header().Set("X-Stream-Protocol-Version", "v5.channel.k8s.io")
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, buf, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			line, err := buf.ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			fmt.Fprintf(conn, "you said %s", line)
		}
		s := rec.serve(t, nil)
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "POST /clusters/recorded/api/v1/namespaces/a/pods/p/exec?command=sh HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Stream-Protocol-Version: v5.channel.k8s.io\r\nContent-Length: 0\r\n\r\n", protocol)
		buf := bufio.NewReader(conn)
		resp, err := http.ReadResponse(buf, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != protocol || resp.Header.Get("X-Stream-Protocol-Version") != "v5.channel.k8s.io" {
			t.Fatalf("%s %v", resp.Status, resp.Header)
		}
		fmt.Fprintln(conn, "hello")
		if got, err := io.ReadAll(buf); err != nil || string(got) != "you said hello\n" {
			t.Errorf("%q, %v", got, err)
		}
		if _, dump := rec.last(); strings.Contains(dump, secret) {
			t.Errorf("the mirror's credentials went out:\n%s", dump)
		}
	}
}

func TestWritersOfDefinitionsAreNoted(t *testing.T) {
	status := http.StatusCreated
	rec := newRecorder(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	wrote := 0
	s := rec.serve(t, func(o *passthrough.Options) { o.Wrote = func(*cluster.Cluster) { wrote++ } })
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	for _, step := range []struct {
		method, path string
		status, want int
	}{
		{http.MethodGet, definitions, 200, 0}, {http.MethodPost, "/api/v1/namespaces", 201, 0}, {http.MethodPost, definitions, 403, 0},
		{http.MethodPost, definitions, 201, 1}, {http.MethodDelete, definitions + "/x", 200, 2}, {http.MethodPut, "/apis/apiregistration.k8s.io/v1/apiservices/x", 200, 3},
	} {
		status = step.status
		do(t, step.method, s.URL+step.path, "", "Authorization", "Bearer a")
		if wrote != step.want {
			t.Errorf("after %s %s: %d", step.method, step.path, wrote)
		}
	}
}
