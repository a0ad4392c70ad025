package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// front is a server before the only cluster of a world.
func front(w *world, handle func(http.ResponseWriter, *http.Request, http.Handler)) *httptest.Server {
	cluster, err := url.Parse(w.hosts[0])
	if err != nil {
		w.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(cluster)
	proxy.FlushInterval = -1
	transport := &http.Transport{}
	proxy.Transport = transport
	w.Cleanup(transport.CloseIdleConnections)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handle(rw, r, proxy) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // of failed handshakes
	w.Cleanup(srv.Close)
	return srv
}

// inFile returns a file with a content.
func inFile(t testing.TB, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certificateOf returns a file of a server's certificate.
func certificateOf(srv *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

func TestTokensStayEncrypted(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	var sent atomic.Pointer[string]
	srv := front(w, func(rw http.ResponseWriter, r *http.Request, cluster http.Handler) {
		token := r.Header.Get("Authorization")
		sent.Store(&token)
		cluster.ServeHTTP(rw, r)
	})
	srv.Start()
	_, port, _ := net.SplitHostPort(srv.Listener.Addr().String())
	elsewhere := "http://0.0.0.0:" + port // no address of this machine alone
	file := inFile(t, []byte("hush\n"))
	for _, args := range [][]string{
		{"--server", elsewhere, "--token", "hush"}, {"--server", elsewhere, "--token-file", file},
		{"--kubeconfig", kubeconfigOf(t, elsewhere), "--token", "hush"},
	} {
		for _, command := range []string{"get", "watch"} {
			out, errs, code := runIn(t.Context(), append([]string{command, "pods"}, args...)...)
			if code != 1 || out != "" || !strings.Contains(errs, args[2]+": not sent to "+elsewhere) || !strings.Contains(errs, "add --insecure-plain-http") || strings.Contains(errs, "hush") {
				t.Errorf("%s: %d, %q, %q", args, code, out, errs)
			}
			if got := sent.Load(); got != nil {
				t.Fatalf("%s: a request was made, with %q", args, *got)
			}
		}
	}
	for _, args := range [][]string{
		{"--server", elsewhere, "--token", "hush", "--insecure-plain-http"}, {"--server", srv.URL, "--token-file", file},
		{"--kubeconfig", kubeconfigOf(t, srv.URL), "--token", "hush"},
	} {
		out, errs, code := runIn(t.Context(), append([]string{"get", "pods", "-o", "name"}, args...)...)
		if code != 0 || out != "pod/p\n" || *sent.Load() != "Bearer hush" {
			t.Errorf("%s: %d, %q, %q, %q", args, code, out, errs, *sent.Load())
		}
	}
	for args, says := range map[string]string{
		"--server http://u:hush@127.0.0.1":                     "credentials do not belong into the URL",
		"--server http://127.0.0.1 --insecure-skip-tls-verify": "--insecure-skip-tls-verify is for https:// servers",
		"--server http://127.0.0.1 --tls-server-name x":        "--tls-server-name is for https:// servers",
		"--server x --token a --token-file " + file:            "--token and --token-file cannot be combined",
		"--server x --token-file " + inFile(t, []byte("\n")):   "is empty",
		"--demo --token hush":                                  "--token: the demo cluster",
	} {
		if _, errs, code := runIn(t.Context(), append([]string{"get", "pods"}, strings.Fields(args)...)...); code != 1 || !strings.Contains(errs, says) || strings.Contains(errs, "hush") {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
}

func TestRedirectsCarryNoToken(t *testing.T) {
	w := newWorld(t)
	var reached atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	defer thief.Close()
	srv := front(w, func(rw http.ResponseWriter, r *http.Request, _ http.Handler) {
		http.Redirect(rw, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
	})
	srv.Start()
	for _, args := range []string{"get pods", "get pods --context *"} {
		_, errs, code := runIn(t.Context(), append(strings.Fields(args), "--server", srv.URL, "--token", "hush")...)
		if code != 1 || !strings.Contains(errs, "the server redirects to "+thief.URL) || reached.Load() {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
}

// A certificate that is wrong is an error at once, with the flag that helps.
func TestCertificateErrors(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	pass := func(rw http.ResponseWriter, r *http.Request, cluster http.Handler) { cluster.ServeHTTP(rw, r) }
	srv, expired := front(w, pass), front(w, pass)
	srv.StartTLS()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(-time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	expired.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	expired.StartTLS()
	ca := inFile(t, certificateOf(srv))
	for _, c := range []struct{ args, says string }{
		{srv.URL, "unknown authority; name the file of that authority's certificate with --certificate-authority"},
		{srv.URL + " --certificate-authority " + ca + " --tls-server-name other.example", "say with --tls-server-name which of them"},
		{expired.URL + " --certificate-authority " + inFile(t, certificateOf(expired)), "renew the server's certificate"},
		{strings.Replace(srv.URL, "https", "http", 1), srv.URL[len("https://"):] + " speaks HTTPS, not HTTP; use --server https://" + srv.URL[len("https://"):]},
		{strings.Replace(w.hosts[0], "http", "https", 1), w.hosts[0][len("http://"):] + " speaks HTTP, not HTTPS; use --server " + w.hosts[0]},
		{srv.URL + " --certificate-authority " + inFile(t, certificateOf(expired)), "unknown authority, which is not in /"},
		{srv.URL + " --certificate-authority /nowhere", "--certificate-authority: open /nowhere"},
	} {
		for _, command := range []string{"get", "watch", "api-resources"} {
			args := append([]string{command, "pods"}, append([]string{"--server"}, strings.Fields(c.args)...)...)
			if command == "api-resources" {
				args = append(args[:1], args[2:]...)
			}
			if _, errs, code := runIn(t.Context(), args...); code != 1 || !strings.Contains(errs, c.says) || strings.Contains(errs, "trying again") || strings.Count(errs, "\n") != 1 {
				t.Errorf("%s: %d, %q lacks %q", args, code, errs, c.says)
			}
		}
	}
	if _, errs, _ := runIn(t.Context(), "get", "pods", "--kubeconfig", kubeconfigOf(t, strings.Replace(srv.URL, "https", "http", 1))); !strings.Contains(errs, "set the server of the context x in the kubeconfig to https://127.0.0.1") {
		t.Error(errs)
	}
	for _, args := range []string{
		"--certificate-authority " + ca, "--insecure-skip-tls-verify", "--certificate-authority " + ca + " --tls-server-name example.com",
	} {
		for _, to := range [][]string{{"--server", srv.URL}, {"--server", srv.Listener.Addr().String()}, {"--kubeconfig", kubeconfigOf(t, srv.URL)}} {
			out, errs, code := runIn(t.Context(), append(append([]string{"get", "pods", "-o", "name"}, strings.Fields(args)...), to...)...)
			if code != 0 || out != "pod/p\n" {
				t.Errorf("%s %s: %d, %q, %q", args, to, code, out, errs)
			}
		}
	}
}

func TestClientCertificate(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	srv := front(w, func(rw http.ResponseWriter, r *http.Request, cluster http.Handler) {
		if len(r.TLS.PeerCertificates) == 0 {
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		cluster.ServeHTTP(rw, r)
	})
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	certificate, key := clientKey(t)
	args := []string{"--server", srv.URL, "--certificate-authority", inFile(t, certificateOf(srv))}
	out, errs, code := runIn(t.Context(), append([]string{"get", "pods", "-o", "name", "--client-certificate", inFile(t, certificate), "--client-key", inFile(t, key)}, args...)...)
	if code != 0 || out != "pod/p\n" {
		t.Errorf("%d, %q, %q", code, out, errs)
	}
	_, errs, code = runIn(t.Context(), append([]string{"get", "pods"}, args...)...)
	if code != 1 || !strings.Contains(errs, "authenticate with --token-file, --token or --client-certificate") {
		t.Errorf("%d, %q", code, errs)
	}
}

// A server that says nothing is reported. It may then go on.
func TestSilentServer(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	speak := make(chan struct{})
	srv := front(w, func(rw http.ResponseWriter, r *http.Request, cluster http.Handler) {
		select {
		case <-speak:
			cluster.ServeHTTP(rw, r)
		case <-r.Context().Done():
		}
	})
	srv.Start()
	for _, args := range []string{"get pods", "watch pods", "watch pods --once", "get pods --context *"} {
		_, errs, code := runIn(t.Context(), append(strings.Fields(args), "--server", srv.URL, "--request-timeout", "100ms")...)
		if code != 1 || !strings.Contains(errs, "no answer from "+srv.URL+" within 100ms; --request-timeout limits it") || strings.Contains(errs, "trying again") {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
	get, watch := w.begin("get", "pods", "-o", "name", "--server", srv.URL), w.begin("watch", "pods", "--server", srv.URL)
	for _, s := range []*session{get, watch} {
		if said := s.remark(); said != "no answer from "+srv.URL+" for 5s; still waiting" {
			t.Error(said)
		}
	}
	close(speak)
	get.expect("pod/p")
	watch.expect("* ADDED Pod default/p …")
	<-get.done
	if code := get.stop(); code != 0 || drain(get.stderr) != "" {
		t.Error(code)
	}
}

// --request-timeout ends an answer that does not end, but no watch.
func TestRequestTimeout(t *testing.T) {
	w := newWorld(t)
	w.create(pod("p"))
	srv := front(w, func(rw http.ResponseWriter, r *http.Request, cluster http.Handler) {
		if strings.Contains(r.Header.Get("Accept"), "as=Table") {
			rw.Header().Set("Content-Type", "application/json")
			_, _ = rw.Write([]byte(`{"kind":`))
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return
		}
		cluster.ServeHTTP(rw, r)
	})
	srv.Start()
	const limit = 2 * time.Second // enough for the list of the watch, on a slow machine, too
	_, errs, code := runIn(t.Context(), "get", "pods", "--server", srv.URL, "--request-timeout", limit.String())
	if code != 1 || !strings.Contains(errs, "within 2s") {
		t.Errorf("%d, %q", code, errs)
	}
	s := w.begin("watch", "pods", "--server", srv.URL, "--request-timeout", limit.String())
	s.expect("* ADDED Pod default/p …")
	for begun := time.Now(); time.Since(begun) < 2*limit; {
		w.delete("p")
		w.create(pod("p"))
		s.expect("* DELETED Pod default/p …", "* ADDED Pod default/p …")
	}
	s.stop()
	if said := drain(s.stderr); said != "" {
		t.Error(said)
	}
}
